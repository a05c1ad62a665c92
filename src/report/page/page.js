// The page, from the data that stand in it. Whatever comes from a user is put in as text, never as HTML.

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") element.className = value;
    else if (name === "style") Object.assign(element.style, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) element.append(child);
  return element;
}
const bytesText = bytes => {
  if (!Number.isFinite(bytes)) return "–";
  for (const [unit, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 1024]]) {
    if (bytes >= size) return Number((bytes / size).toPrecision(4)) + " " + unit;
  }
  return bytes + " B";
};
const dateText = seconds => new Date(seconds * 1000).toLocaleString("sv-SE");
const percent = share => (100 * share).toFixed(share < 0.1 ? 1 : 0) + " %";
const msText = ms => !Number.isFinite(ms) ? "–" : ms >= 10000 ? timeText(ms / 1000) : Number(ms.toPrecision(3)) + " ms";
const swatch = color => make("span", { class: "swatch", style: { background: "var(" + color + ")" } });
const runColor = index => "--c" + index % 6;

const partColors = {
  "compute": "--compute", "data": "--data", "wait: ranks": "--wait1", "wait: weights": "--wait1", "wait: gradients": "--wait2",
  "wait: losses": "--wait3", "wait: host tier": "--host", "wait: disk tier": "--disk", "save": "--save", "evaluate": "--evaluate",
};
const partMeaning = {
  "compute": "the rest of the step: forward, backward, update", "data": "reading tokens",
  "wait: ranks": "other ranks", "wait: weights": "for weights of other ranks", "wait: gradients": "for the sum of gradients and their norm",
  "wait: losses": "for all ranks to end the step", "wait: host tier": "the GPU, for states and weights in host memory",
  "wait: disk tier": "for states and weights on disk", "save": "checkpoints, spread over all steps", "evaluate": "evaluations, spread over all steps",
};

// Columns of a run, decoded once.
function seriesOf(run) {
  const coded = run.series, decoded = { steps: decode(coded.step, Float64Array), seconds: decode(coded.seconds, Float64Array), each: coded.steps_a_point };
  for (const [name, value] of Object.entries(coded)) {
    if (typeof value !== "object") continue;
    decoded[name] = {};
    for (const [kind, text] of Object.entries(value)) decoded[name][kind] = decode(text, Float32Array);
  }
  return decoded;
}
function curve(run, index, column, factor) {
  const from = run.decoded[column];
  const scaled = values => values && factor ? values.map(value => value * factor) : values;
  return {
    name: many ? run.name : column, color: runColor(index), steps: run.decoded.steps, seconds: run.decoded.seconds, each: run.decoded.each,
    mean: from && scaled(from.mean), least: from && scaled(from.least), most: from && scaled(from.most),
  };
}

let many = false;

function header(data) {
  const first = data.runs[0];
  const title = many ? data.runs.length + " runs" : first.name;
  const state = LIVE && (first.state === "under way" || !first.state) ? "live" : first.state;
  const parts = [make("h1", {}, title, !many && state ? make("span", { class: "state " + state }, state) : null)];
  data.runs.forEach((run, index) => {
    const about = run.about || {}, facts = [];
    if (many) facts.push(run.name);
    if (about.model) facts.push("model " + about.model);
    if (about.data) facts.push("data " + about.data);
    if (about.ranks) facts.push(about.ranks + (about.ranks === 1 ? " rank" : " ranks") + (about.ranks > 1 && about.transport ? " over " + about.transport : ""));
    if (about.device) facts.push(about.device);
    if (about.seed !== undefined) facts.push("seed " + about.seed);
    parts.push(make("p", { class: "facts" }, many ? swatch(runColor(index)) : null, facts.join(" · "), many && run.state ? make("span", { class: "state " + run.state }, run.state) : null));
  });
  parts.push(make("p", { class: "facts" }, "Page of " + dateText(data.made) + (LIVE ? ", renewed while the run goes on" : "")));
  return parts;
}

function tiles(run, index) {
  const s = run.summary, about = run.about || {}, all = [];
  const tile = (name, value, title) => all.push(make("div", { class: "tile", title: title || "" }, make("b", {}, value), make("span", {}, name)));
  tile(about.steps ? "of " + about.steps.toLocaleString("en-US") + " steps" : "last step", s.last_step === null ? "0" : s.last_step.toLocaleString("en-US"));
  tile("last loss", s.last_loss === null ? (s.steps ? "not finite" : "–") : numberText(s.last_loss));
  if (s.best_evaluation) tile("best validation, step " + s.best_evaluation.step, numberText(s.best_evaluation.loss));
  tile("a step, at the median", s.median_step_ms === null ? "–" : msText(s.median_step_ms));
  tile("tokens a second", numberText(s.tokens_per_s));
  if (s.mfu !== null) tile("MFU", percent(s.mfu), "arithmetic of the model beside what its devices could do");
  else if (s.flops_per_s_of_a_rank !== null) tile("FLOP/s of a rank", shortText(s.flops_per_s_of_a_rank), "the model's arithmetic. No MFU: the peak of this device is not known. --peak-tflops says it");
  if (s.overlap !== null) tile("of communication hidden", percent(s.overlap), "share of the time that collectives were under way in which this rank did not wait for them");
  if (s.skipped > 0) tile("steps skipped", numberText(s.skipped));
  tile("in steps", timeText(s.steps_seconds));
  return make("div", { class: "tiles" }, all);
}

function tools() {
  // Made anew while a run goes on: with what the reader chose before.
  const on = (name, chosen) => chosen ? { [name]: "" } : {};
  const check = (text, chosen, change) => make("label", {}, make("input", { type: "checkbox", onchange: event => { change(event.target.checked); drawAll(); }, ...on("checked", chosen) }), text);
  return make("div", { class: "tools" },
    make("span", {}, "Drag over a chart to look closer."),
    make("button", { class: "whole", onclick: () => zoom(null, null), ...on("disabled", view.low === null) }, "Whole run"),
    check("over time", view.byTime, chosen => { view.byTime = chosen; zoom(null, null); }),
    check("loss in powers of ten", view.log, chosen => { view.log = chosen; }),
    make("label", {}, "smooth", make("input", { type: "range", min: "0", max: "0.99", step: "0.01", value: String(view.smooth), oninput: event => { view.smooth = Number(event.target.value); drawAll(); } })));
}

function card(title, note, options, wide) {
  const element = make("div", { class: "card" + (wide ? " wide" : "") }, make("h3", {}, title, make("span", {}, note || "")));
  element.chart = () => new Chart(element, Object.assign({ title }, options));
  return element;
}

function eventLines(run) {
  const lines = [];
  for (const event of run.events) {
    if (event.event === "save") lines.push({ step: event.step, color: "--save", foot: true });
    if (event.event === "resume") lines.push({ step: event.step, color: "--soft", dash: [4, 4] });
    if (event.event === "restart") lines.push({ step: event.step, color: "--bad", dash: [4, 4] });
    if (event.event === "failed" || event.event === "stopped") lines.push({ step: event.step, color: "--bad", dash: [2, 3] });
  }
  return lines;
}
function marksFor(run, column) {
  const marks = [];
  for (const mark of run.marks.marks) {
    if (mark.kind === "outlier" && mark.column === column) marks.push({ step: mark.step, color: "--warn", value: mark.value });
    if (mark.kind === "skipped") marks.push({ step: mark.step, color: "--bad" });
    if (mark.kind === "loss is not finite" && column === "loss") marks.push({ step: mark.step, color: "--bad" });
  }
  return marks;
}

function curves(data) {
  const runs = data.runs, grid = make("div", { class: "grid" }), cards = [];
  const has = column => runs.some(run => run.decoded[column]);
  const add = (title, unit, column, more, factorOf) => {
    if (!has(column)) return;
    const series = runs.map((run, index) => curve(run, index, column, factorOf && factorOf(run)));
    if (column === "loss") runs.forEach((run, index) => { series[index].dots = run.evaluations; series[index].name = many ? run.name : "loss"; });
    const marks = runs.flatMap(run => marksFor(run, column));
    cards.push(card(title, unit, Object.assign({ unit: "", series, marks, lines: runs.flatMap(eventLines), canSmooth: true }, more)));
  };
  add("Loss", runs.some(run => run.evaluations.length) ? "circles: validation" : "", "loss", { height: 240, canLog: true });
  add("Gradient norm", "before clipping", "grad_norm", { height: 240, canLog: true });
  add("Learning rate", "", "lr", { fromZero: true });
  add("Tokens a second", "", "tokens_per_s", { fromZero: true });
  if (runs.some(run => run.summary.mfu !== null)) {
    add("MFU", "%", "tokens_per_s", { fromZero: true, unit: "%" }, run => run.about && run.about.peak_flops ? 100 * run.about.flops_per_token / run.about.peak_flops / run.about.ranks : NaN);
  }
  if (runs.some(run => { const scale = run.decoded.loss_scale; return scale && scale.mean.some(value => value !== scale.mean[0]); })) add("Loss scale", "fp16", "loss_scale", { fromZero: true });
  add("Time of a step", "ms", "step_ms", { fromZero: true, unit: "ms" });
  grid.append(...cards);
  return [grid, cards];
}

function marksText(runs) {
  const rows = [];
  runs.forEach((run, index) => {
    const groups = new Map();
    for (const mark of run.marks.marks) {
      const name = mark.kind === "outlier" ? "outlier: " + mark.column : mark.kind;
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(mark);
    }
    for (const [name, marks] of groups) {
      const told = marks.slice(0, 8).map(mark => mark.step + (mark.value !== undefined ? " (" + numberText(mark.value) + ", usual " + numberText(mark.usual) + ")" : ""));
      rows.push(make("tr", {}, many ? make("td", {}, swatch(runColor(index)), run.name) : null, make("td", {}, name), make("td", { class: "n" }, String(marks.length)),
        make("td", {}, "steps " + told.join(", ") + (marks.length > 8 ? ", …" : ""))));
    }
    if (run.marks.left_out) rows.push(make("tr", {}, many ? make("td", {}, run.name) : null, make("td", {}, "more of them"), make("td", { class: "n" }, String(run.marks.left_out)), make("td", {}, "not drawn; metrics.jsonl has them")));
  });
  if (rows.length === 0) return [];
  return [make("h2", {}, "Steps that stand out"), make("p", { class: "soft" }, "Rings: far above the 200 steps around them. Triangles: skipped, or no finite loss."), make("div", { class: "card" }, make("table", {}, make("tbody", {}, rows)))];
}

function stepTime(runs) {
  const timed = runs.filter(run => run.parts.length);
  if (timed.length === 0) return [[], []];
  const most = Math.max(...timed.map(run => run.parts.reduce((sum, part) => sum + part.ms, 0)));
  const bars = make("div", { class: "card wide" }), names = new Set();
  timed.forEach(run => {
    const whole = run.parts.reduce((sum, part) => sum + part.ms, 0);
    bars.append(make("h3", {}, many ? run.name : "A median step", make("span", {}, msText(run.summary.median_step_ms) + " a step")));
    bars.append(make("div", { class: "stack", style: { width: 100 * whole / most + "%" } }, run.parts.map(part => {
      names.add(part.name);
      return make("div", { style: { width: 100 * part.ms / whole + "%", background: "var(" + partColors[part.name] + ")" }, title: part.name + ": " + msText(part.ms) }, part.ms / most > 0.09 ? percent(part.ms / whole) : "");
    })));
  });
  const only = timed.length === 1 ? timed[0] : null;
  bars.append(make("div", { class: "legend" }, [...names].map(name => {
    const part = only && only.parts.find(each => each.name === name);
    return make("span", { title: partMeaning[name] || "" }, swatch(partColors[name]), name + (part ? " " + msText(part.ms) : ""));
  })));
  const cards = [];
  timed.forEach(run => {
    const d = run.decoded, columns = [["data", "data_ms"], ["wait: weights", "wait_weights_ms"], ["wait: gradients", "wait_gradients_ms"], ["wait: losses", "wait_losses_ms"],
      ["wait: host tier", "wait_host_ms"], ["wait: disk tier", "wait_disk_ms"]];
    if (!d.wait_weights_ms) columns.splice(1, 3, ["wait: ranks", "wait_comm_ms"]);
    const there = columns.filter(([, column]) => d[column] && d[column].mean.some(value => value > 0));
    const compute = d.step_ms.mean.map((ms, i) => Math.max(0, there.reduce((rest, [, column]) => rest - (d[column].mean[i] || 0), ms)));
    const series = [["compute", { mean: compute }], ...there.map(([name, column]) => [name, d[column]])].map(([name, values]) => ({
      name, color: partColors[name], steps: d.steps, seconds: d.seconds, each: d.each, mean: values.mean }));
    cards.push(card(many ? run.name + ", over time" : "Over time", "ms a step", { series, stack: true, unit: "ms", height: 170 }, !many || timed.length === 1));
  });
  return [[make("h2", {}, "Where a step's time goes"),
    make("p", { class: "soft" }, "Rank 0. The waits of its threads and of its GPU are added, though both may wait at once; what is left is called compute."),
    make("div", { class: "grid" }, bars, cards)], cards];
}

function ranksTable(run) {
  if (run.ranks.length < 2 || run.ranks.some(rank => rank.own_ms === null)) return [];
  const own = run.ranks.map(rank => rank.own_ms), sorted = own.slice().sort((a, b) => a - b), usual = sorted[sorted.length >> 1];
  const most = Math.max(...run.ranks.map(rank => rank.own_ms + rank.wait_comm_ms + rank.wait_host_ms + rank.wait_disk_ms));
  const slow = own.indexOf(Math.max(...own)), stands = own[slow] > 1.1 * (sorted[(sorted.length - 1) >> 1] || usual);
  const shown = run.ranks.length > 64 ? run.ranks.slice().sort((a, b) => b.own_ms - a.own_ms).slice(0, 64) : run.ranks;
  const rows = shown.map(rank => make("tr", {}, make("td", { class: stands && rank.rank === slow ? "warn" : "" }, "rank " + rank.rank + (stands && rank.rank === slow ? " (slow)" : "")),
    make("td", { style: { width: "50%" } }, make("div", { class: "stack", style: { height: "14px", margin: "3px 0" } },
      [["own_ms", "--compute"], ["wait_comm_ms", "--wait1"], ["wait_host_ms", "--host"], ["wait_disk_ms", "--disk"]].map(([key, color]) => make("div", { style: { width: 100 * rank[key] / most + "%", background: "var(" + color + ")", padding: "0" } })))),
    make("td", { class: "n" }, msText(rank.own_ms)), make("td", { class: "n" }, msText(rank.wait_comm_ms)), make("td", { class: "n" }, msText(rank.wait_host_ms)), make("td", { class: "n" }, msText(rank.wait_disk_ms))));
  return [make("h2", {}, many ? "Ranks of " + run.name : "Ranks"),
    make("p", { class: "soft" }, stands ? "The others wait for rank " + slow + ": it works " + percent(own[slow] / usual - 1) + " longer than the median rank, and waits least." : "No rank works much longer than the others.",
      run.ranks.length > 64 ? " Shown are the 64 that work longest." : ""),
    make("div", { class: "card scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ["", "a mean step", "own work", "wait: ranks", "wait: host", "wait: disk"].map((name, i) => make("th", { class: i > 1 ? "n" : "" }, name)))), make("tbody", {}, rows)))];
}

const memoryRows = [["device", "weights", "weights"], ["device", "second_weights", "second copy of weights"], ["device", "gradients", "gradients"], ["device", "states", "optimizer states"], ["device", "gather_arena", "gathered units"],
  ["device", "reduce_slots", "gradients on the way"], ["device", "state_ring", "states on the way"], ["host", "host_weights", "weights"], ["host", "host_gradients", "gradients"],
  ["host", "host_states", "optimizer states"], ["host", "disk_buffers", "buffers of the disk"], ["disk", "disk_weights", "weights"], ["disk", "disk_states", "optimizer states"]];

function memoryTable(run) {
  if (!run.memory || !run.memory.planned || !run.memory.held) return [];
  const { planned, held } = run.memory, rows = memoryRows.filter(([, key]) => planned[key] > 0 || held[key] > 0).map(([tier, key, name]) => [tier, name, planned[key], held[key]]);
  if (run.memory.planned_activations > 0) rows.push(["device", "activations", run.memory.planned_activations, run.memory.peak_beside === undefined ? NaN : run.memory.peak_beside]);
  const most = Math.max(...rows.map(row => Math.max(row[2], Number.isFinite(row[3]) ? row[3] : 0)), 1);
  return [make("h2", {}, many ? "Memory of a rank, " + run.name : "Memory of a rank"),
    make("p", { class: "soft" }, "Held when the run ended, and below it, paler, what was planned before it began."),
    make("div", { class: "card" }, make("table", {}, make("thead", {}, make("tr", {}, make("th", {}, "tier"), make("th", {}, "for"), make("th", {}, ""), make("th", { class: "n" }, "held"), make("th", { class: "n" }, "planned"))),
      make("tbody", {}, rows.map(([tier, name, plan, hold]) => make("tr", {}, make("td", { class: "soft" }, tier), make("td", {}, name),
        make("td", { class: "bar" }, make("div", { style: { width: 100 * (Number.isFinite(hold) ? hold : 0) / most + "%", background: "var(--compute)" } }), make("div", { style: { width: 100 * plan / most + "%", background: "var(--compute)" } })),
        make("td", { class: "n" }, Number.isFinite(hold) ? bytesText(hold) : "not measured"), make("td", { class: "n" }, bytesText(plan)))))))];
}

const eventWords = { "start": "started", "resume": "went on", "restart": "started again", "save": "checkpoint", "save failed": "checkpoint failed", "evaluation": "evaluation", "trace": "trace", "end": "done", "stopped": "stopped", "failed": "failed" };

function timeline(run) {
  const events = run.events.filter(event => eventWords[event.event] && Number.isFinite(event.time));
  if (events.length === 0) return [];
  const low = events[0].time - (events[0].ms || 0) / 1000, high = Math.max(events[events.length - 1].time, low + 1);
  const at = time => 100 * Math.min(1, Math.max(0, (time - low) / (high - low)));
  const bar = make("div", { class: "line" });
  let begin = null;
  const period = (from, to) => bar.append(make("i", { style: { left: at(from) + "%", width: Math.max(0.2, at(to) - at(from)) + "%", background: "var(--compute)", opacity: "0.45", top: "9px", bottom: "9px" } }));
  for (const event of events) {
    if (event.event === "start" || event.event === "resume") { begin = event.time; }
    if (event.event === "end" || event.event === "restart" || event.event === "failed" || event.event === "stopped") { if (begin !== null) period(begin, event.time); begin = null; }
  }
  if (begin !== null) period(begin, high);
  const colors = { "save": "--save", "save failed": "--bad", "evaluation": "--evaluate", "resume": "--accent", "restart": "--bad", "failed": "--bad", "stopped": "--bad", "trace": "--disk" };
  for (const event of events.slice(-2000)) {
    if (!colors[event.event]) continue;
    const from = event.time - (event.ms || 0) / 1000;
    bar.append(make("i", { title: eventWords[event.event] + ", step " + event.step, style: { left: at(from) + "%", width: Math.max(0, at(event.time) - at(from)) + "%", background: "var(" + colors[event.event] + ")" } }));
  }
  const told = events.filter(event => event.event !== "evaluation");
  const what = event => {
    const more = [];
    if (event.ranks && event.event !== "trace") more.push(event.ranks + (event.ranks === 1 ? " rank" : " ranks"));
    if (event.checkpoint) more.push("from " + event.checkpoint);
    if (event.ms !== undefined) more.push("in " + msText(event.ms));
    if (event.path) more.push(event.path);
    if (event.why) more.push(event.why);
    if (event.signal) more.push("by signal " + event.signal);
    if (event.event === "trace") more.push(event.said);
    return more.join(", ");
  };
  const rows = told.slice(-200).map(event => make("tr", {}, make("td", { class: "soft", style: { whiteSpace: "nowrap" } }, dateText(event.time)), make("td", { class: "n" }, "step " + event.step),
    make("td", { class: event.event.includes("fail") ? "bad" : "" }, eventWords[event.event]), make("td", {}, what(event))));
  return [make("h2", {}, many ? "What happened, " + run.name : "What happened"),
    make("div", { class: "card" }, make("div", { class: "soft" }, dateText(low) + " to " + dateText(high)), bar,
      make("div", { class: "legend" }, [["running", "--compute"], ["checkpoint", "--save"], ["evaluation", "--evaluate"], ["went on", "--accent"], ["failed, stopped or started again", "--bad"]].map(([name, color]) => make("span", {}, swatch(color), name))),
      make("details", { open: told.length <= 12 ? "" : null }, make("summary", { class: "soft" }, told.length + " events" + (told.length > 200 ? ", the last 200 shown" : "")), make("div", { class: "scroll" }, make("table", {}, make("tbody", {}, rows)))))];
}

function traces(run) {
  if (run.traces.length === 0) return [];
  const said = run.events.filter(event => event.event === "trace").map(event => event.said);
  return [make("h2", {}, many ? "Traces of " + run.name : "Traces"), make("div", { class: "card" },
    said.map(text => make("p", {}, text)),
    make("p", {}, "To look at one: open ui.perfetto.dev or chrome://tracing in a browser, and drag the file into the window. The files: "),
    make("ul", {}, run.traces.map(name => make("li", { class: "mono" }, run.path.replace(/\/+$/, "") + "/" + name))))];
}

function configTable(run) {
  if (run.config.length === 0) return [];
  const body = make("tbody", {}), filter = make("input", { type: "search", placeholder: "a key, a value, a status", "aria-label": "filter keys" });
  const changed = make("input", { type: "checkbox" });
  const fill = () => {
    const words = filter.value.toLowerCase();
    const rows = run.config.filter(row => (!changed.checked || row.changed) && (row.key + " " + row.value + " " + row.fate).toLowerCase().includes(words));
    body.replaceChildren(...rows.map(row => make("tr", {}, make("td", { class: "mono" }, row.key), make("td", { class: "mono" }, row.changed ? make("b", {}, row.value) : row.value), make("td", { class: "mono soft" }, row.default),
      make("td", { class: row.fate === "carried out" ? "" : "soft" }, row.fate + (row.why && row.fate !== "carried out" ? ": " + row.why : "")))));
  };
  changed.checked = run.config.some(row => row.changed);
  filter.addEventListener("input", fill);
  changed.addEventListener("change", fill);
  fill();
  const starts = run.events.filter(event => event.notices && event.notices.length), notices = starts.length ? starts[starts.length - 1].notices : [];
  return [make("h2", {}, many ? "Config of " + run.name : "Config"),
    make("div", { class: "tools" }, filter, make("label", {}, changed, "only what is not the default")),
    notices.length ? make("ul", { class: "soft" }, notices.map(notice => make("li", {}, notice))) : null,
    make("div", { class: "card scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ["key", "value", "default", "what became of it"].map(name => make("th", {}, name)))), body))];
}

function comparisons(data) {
  const parts = [];
  for (const found of data.comparisons) {
    const pair = found.first + " and " + found.second;
    if (found.why_not) { parts.push(make("div", { class: "card" }, make("h3", {}, pair), make("p", { class: "soft" }, "Not compared: " + found.why_not))); continue; }
    const verdict = found.equal ? "Equal to the bit in all " + found.steps + " steps that both have." : found.equal_until === null ? "Different from the first step that both have." : "Equal to the bit until step " + found.equal_until + ".";
    const rows = found.settings.map(setting => make("tr", {}, make("td", { class: "mono" }, setting.name), make("td", { class: "mono" }, setting.first || "(none)"), make("td", { class: "mono" }, setting.second || "(none)")));
    const difference = found.difference && make("p", {}, "First difference, " + (found.difference.file === "eval.jsonl" ? "evaluation after step " : "step ") + found.difference.step + ": " +
      found.difference.columns.map(column => column.name + " " + column.first + " | " + column.second).join(", "));
    const state = found.state && make("p", {}, "First digests that differ: after step " + found.state.step + ", unit " + found.state.unit + ", parameter " + found.state.parameter + "; " + found.state.differing_parameters + " of " + found.state.parameters + " parameters.");
    parts.push(make("div", { class: "card" }, make("h3", {}, pair), make("p", { class: found.equal ? "good" : "" }, verdict), difference, state,
      rows.length ? make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, [ "settings that differ", found.first, found.second].map(name => make("th", {}, name)))), make("tbody", {}, rows))) : make("p", { class: "soft" }, "The same settings."),
      found.notes.length ? make("ul", { class: "soft" }, found.notes.map(note => make("li", {}, note))) : null));
  }
  return parts.length ? [make("h2", {}, "Compared"), ...parts] : [];
}

function show(data) {
  many = data.runs.length > 1;
  charts.length = 0;
  for (const run of data.runs) run.decoded = seriesOf(run);
  const page = document.getElementById("page"), notes = data.runs.flatMap(run => run.notes.map(note => (many ? run.name + ": " : "") + note));
  const [grid, cards] = curves(data), [time, timeCards] = stepTime(data.runs);
  const above = data.runs.flatMap((run, index) => [many ? make("h2", {}, swatch(runColor(index)), run.name) : null, tiles(run, index)]);
  const empty = data.runs.every(run => run.summary.steps === 0);
  page.replaceChildren(...[...header(data), ...above, notes.length ? make("ul", { class: "warn" }, notes.map(note => make("li", {}, note))) : null,
    ...comparisons(data), make("h2", {}, "Curves"), empty ? make("p", { class: "soft" }, "No step has been taken yet.") : tools(), grid, ...marksText(data.runs), ...time,
    ...data.runs.flatMap(run => [...ranksTable(run), ...memoryTable(run), ...timeline(run), ...traces(run), ...configTable(run)])].filter(Boolean));
  for (const each of [...cards, ...timeCards]) each.chart();
  for (const chart of charts) chart.draw();
  document.documentElement.dataset.charts = charts.length;
  document.documentElement.dataset.shown = Math.round(performance.now());
}

show(JSON.parse(document.getElementById("data").textContent));
window.addEventListener("resize", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);

// Where somebody serves the page while the run goes on: what it has now, every few seconds.
if (LIVE) {
  const again = async () => {
    try {
      const answer = await fetch("data.json");
      if (answer.ok && !document.hidden && view.hover === null && document.querySelector("input:active") === null) {
        const controls = () => [...document.querySelectorAll(".tools input, .tools button")];
        const at = window.scrollY, focused = controls().indexOf(document.activeElement);
        show(await answer.json());
        window.scrollTo(0, at);
        controls()[focused]?.focus({ preventScroll: true });
      }
    } catch (error) {
      document.querySelector(".state.live")?.replaceChildren("no answer");
    }
    setTimeout(again, 3000);
  };
  setTimeout(again, 3000);
}
