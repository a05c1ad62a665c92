"use strict";
// Charts on a canvas: curves over steps or time, and stacks of what a step's time went to. All charts of the page show
// the same stretch and the same step under the pointer. What is drawn is at most two values a pixel column.

const charts = [];
const view = { low: null, high: null, byTime: false, hover: null, smooth: 0, log: false };

function colorOf(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

function decode(text, Type) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Type(bytes.buffer);
}

function numberText(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e15)) return value.toExponential(2);
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(size >= 100 ? 4 : 5)));
}
function shortText(value) {
  const size = Math.abs(value);
  if (size >= 1e12) return Number((value / 1e12).toPrecision(4)) + " T";
  if (size >= 1e9) return Number((value / 1e9).toPrecision(4)) + " G";
  if (size >= 1e6) return Number((value / 1e6).toPrecision(4)) + " M";
  if (size >= 1e4) return Number((value / 1e3).toPrecision(4)) + " k";
  if (size !== 0 && size < 1e-3) return value.toExponential(1).replace(".0e", "e");
  return String(Number(value.toPrecision(4)));
}
function timeText(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 90) return Number(seconds.toPrecision(3)) + " s";
  if (seconds < 5400) return (seconds / 60).toFixed(1) + " min";
  if (seconds < 172800) return (seconds / 3600).toFixed(1) + " h";
  return (seconds / 86400).toFixed(1) + " days";
}

function ticksBetween(low, high, count) {
  if (!(high > low)) return [];
  const rough = (high - low) / count, power = Math.pow(10, Math.floor(Math.log10(rough)));
  let step = 10 * power;
  for (const factor of [5, 2, 1]) if (factor * power >= rough) step = factor * power;
  const ticks = [];
  for (let tick = Math.ceil(low / step); tick * step <= high + step * 1e-9; tick++) ticks.push(tick * step);
  return ticks;
}

// The first index whose value is not below x.
function indexOf(values, x) {
  let low = 0, high = values.length;
  while (low < high) { const middle = (low + high) >> 1; if (values[middle] < x) low = middle + 1; else high = middle; }
  return low;
}

function smoothed(values, strength) {
  if (!(strength > 0)) return values;
  const out = new Float32Array(values.length);
  let sum = 0, weight = 0;
  for (let i = 0; i < values.length; i++) {
    if (!Number.isFinite(values[i])) { out[i] = NaN; continue; }
    sum = strength * sum + (1 - strength) * values[i];
    weight = strength * weight + (1 - strength);
    out[i] = sum / weight;
  }
  return out;
}

function axisOf(series) { return view.byTime ? series.seconds : series.steps; }

function wholeStretch() {
  let low = Infinity, high = -Infinity;
  for (const chart of charts) for (const series of chart.series) {
    const axis = axisOf(series);
    if (axis.length > 0) { low = Math.min(low, axis[0]); high = Math.max(high, axis[axis.length - 1]); }
  }
  if (!(low <= high)) return [0, 1];
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}
function stretch() { return view.low === null ? wholeStretch() : [view.low, view.high]; }

function zoom(low, high) {
  view.low = low; view.high = high;
  for (const button of document.querySelectorAll(".whole")) button.disabled = low === null;
  drawAll();
}

let planned = false;
function drawAll() {
  if (planned) return;
  planned = true;
  requestAnimationFrame(() => { planned = false; for (const chart of charts) chart.draw(); });
}

class Chart {
  // options: { title, unit, height, series: [{ name, color, steps, seconds, mean, least, most, dots, marks, at }], stack, bySteps }
  constructor(parent, options) {
    Object.assign(this, { height: 190, stack: false, marks: [], lines: [] }, options);
    this.canvas = document.createElement("canvas");
    this.canvas.style.height = this.height + "px";
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", this.title + " over steps");
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    parent.append(this.canvas, this.tip);
    this.canvas.addEventListener("pointermove", event => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { this.tip.style.display = "none"; view.hover = null; drawAll(); });
    this.canvas.addEventListener("pointerdown", event => { this.from = event.offsetX; this.canvas.setPointerCapture(event.pointerId); });
    this.canvas.addEventListener("pointerup", event => this.release(event));
    this.canvas.addEventListener("dblclick", () => zoom(null, null));
    charts.push(this);
  }

  get box() { return { left: 58, right: this.canvas.clientWidth - 8, top: 8, bottom: this.height - 22 }; }
  xOf(value) { const [low, high] = stretch(), b = this.box; return b.left + (value - low) / (high - low) * (b.right - b.left); }
  valueAt(x) { const [low, high] = stretch(), b = this.box; return low + (x - b.left) / (b.right - b.left) * (high - low); }

  release(event) {
    const from = this.from;
    this.from = null;
    if (from === null || from === undefined || Math.abs(event.offsetX - from) < 6) return drawAll();
    const [low, high] = stretch();
    const a = Math.max(low, this.valueAt(Math.min(from, event.offsetX))), b = Math.min(high, this.valueAt(Math.max(from, event.offsetX)));
    if (b > a) zoom(a, b);
  }

  point(event) {
    view.hover = this.valueAt(event.offsetX);
    this.to = event.offsetX;
    this.tell(event);
    drawAll();
  }

  tell(event) {
    const rows = [];
    for (const series of this.series) {
      const axis = axisOf(series);
      if (axis.length === 0) continue;
      let i = Math.min(indexOf(axis, view.hover), axis.length - 1);
      if (i > 0 && view.hover - axis[i - 1] < axis[i] - view.hover) i--;
      if (rows.length === 0) rows.push(["step " + numberText(series.steps[i]) + (series.each > 1 ? " (and the " + (series.each - 1) + " before)" : "") + ", " + timeText(series.seconds[i]), null]);
      if (!series.mean) continue;
      let text = numberText(series.mean[i]);
      if (series.least && series.most && series.each > 1) text += "  (" + numberText(series.least[i]) + " to " + numberText(series.most[i]) + ")";
      rows.push([series.name + ": " + text + (this.unit ? " " + this.unit : ""), series.color]);
    }
    this.tip.replaceChildren(...rows.map(([text, color]) => {
      const row = document.createElement("div");
      if (color) { const mark = document.createElement("span"); mark.className = "swatch"; mark.style.background = colorOf(color); row.append(mark); }
      row.append(text);
      return row;
    }));
    this.tip.style.display = rows.length ? "block" : "none";
    const right = event.offsetX > this.canvas.clientWidth / 2;
    this.tip.style.left = right ? "" : event.offsetX + 26 + "px";
    this.tip.style.right = right ? this.canvas.clientWidth - event.offsetX + 26 + "px" : "";
    this.tip.style.top = this.canvas.offsetTop + 10 + "px";
  }

  // Of what is in view; a few values far above the others would flatten them, and are shown at the edge.
  rangeUp() {
    if (this.stack) return this.stackRange();
    const [low, high] = stretch(), seen = [];
    for (const series of this.series) {
      const axis = axisOf(series), begin = indexOf(axis, low), end = Math.min(axis.length, indexOf(axis, high) + 1);
      const each = Math.max(1, Math.floor((end - begin) / 4000));
      for (let i = begin; i < end; i++) {
        if (series.mean && Number.isFinite(series.mean[i]) && (i - begin) % each === 0) seen.push(series.mean[i]);
      }
      for (const dot of series.dots || []) { const x = this.dotAt(series, dot[0]); if (x >= low && x <= high) seen.push(dot[1]); }
    }
    const values = seen.filter(value => !this.isLog() || value > 0).sort((a, b) => a - b);
    if (values.length === 0) return null;
    let bottom = values[0], top = values[values.length - 1];
    const usual = values[Math.floor((values.length - 1) * 0.98)], middle = values[values.length >> 1];
    if (!this.isLog() && values.length > 50 && top - bottom > 4 * (usual - bottom) && usual > middle) top = usual + (usual - bottom) * 0.6;
    if (this.fromZero) bottom = Math.min(0, bottom);
    if (bottom === top) { const room = bottom === 0 ? 1 : Math.abs(bottom) * 0.1; return [bottom - (this.fromZero && bottom === 0 ? 0 : room), top + room]; }
    if (this.isLog()) return [Math.log10(bottom), Math.log10(top)];
    const room = (top - bottom) * 0.05;
    return [this.fromZero && bottom === 0 ? 0 : bottom - room, top + room];
  }
  isLog() { return view.log && this.canLog; }

  stackRange() {
    let top = 0;
    for (const column of this.columns()) { let sum = 0; for (const part of column) sum += part; top = Math.max(top, sum); }
    return top > 0 ? [0, top * 1.05] : null;
  }

  // Of a stack: means by pixel column, one value a series; columns without a point are those before them.
  columns() {
    const b = this.box, count = Math.max(1, Math.floor(b.right - b.left));
    const axis = axisOf(this.series[0]), columns = [];
    for (let column = 0; column < count; column++) {
      const begin = indexOf(axis, this.valueAt(b.left + column)), end = Math.max(begin + 1, indexOf(axis, this.valueAt(b.left + column + 1)));
      if (begin >= axis.length) { columns.push([]); continue; }
      columns.push(this.series.map(series => {
        let sum = 0, found = 0;
        for (let i = begin; i < Math.min(end, axis.length); i++) if (Number.isFinite(series.mean[i])) { sum += series.mean[i]; found++; }
        return found ? Math.max(0, sum / found) : 0;
      }));
    }
    return columns;
  }

  dotAt(series, step) {
    if (!view.byTime) return step;
    const i = Math.min(indexOf(series.steps, step), series.seconds.length - 1);
    return i >= 0 ? series.seconds[i] : 0;
  }

  draw() {
    const width = this.canvas.clientWidth, scale = window.devicePixelRatio || 1;
    if (width === 0) return;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(this.height * scale);
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.clearRect(0, 0, width, this.height);
    pen.font = "11px system-ui, sans-serif";
    const b = this.box, range = this.rangeUp(), [low, high] = stretch();
    const soft = colorOf("--soft"), grid = colorOf("--grid");
    if (!range) {
      pen.fillStyle = soft;
      pen.textAlign = "center";
      pen.fillText(this.nothing || "nothing to draw yet", width / 2, this.height / 2);
      return;
    }
    const log = this.isLog();
    const yOf = value => b.bottom - ((log ? Math.log10(Math.max(value, 1e-300)) : value) - range[0]) / (range[1] - range[0]) * (b.bottom - b.top);
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const tick of ticksBetween(range[0], range[1], this.height > 200 ? 7 : 5)) {
      const value = log ? Math.pow(10, tick) : tick, y = Math.round(yOf(value)) + 0.5;
      pen.strokeStyle = grid;
      pen.beginPath(); pen.moveTo(b.left, y); pen.lineTo(b.right, y); pen.stroke();
      pen.fillStyle = soft;
      pen.fillText(shortText(value), b.left - 7, y);
    }
    pen.textBaseline = "alphabetic";
    const ticks = ticksBetween(low, high, Math.max(2, Math.floor((b.right - b.left) / 90)));
    for (const tick of ticks) {
      if (!view.byTime && tick !== Math.round(tick)) continue;
      const x = this.xOf(tick);
      pen.textAlign = x > b.right - 24 ? "right" : "center";
      pen.fillStyle = soft;
      pen.fillText(view.byTime ? timeText(tick) : shortText(tick), Math.min(x, b.right), this.height - 7);
    }
    pen.save();
    pen.beginPath(); pen.rect(b.left, b.top, b.right - b.left, b.bottom - b.top); pen.clip();
    for (const line of this.lines) {
      const x = Math.round(this.xOf(this.dotAt(this.series[0], line.step))) + 0.5;
      pen.strokeStyle = colorOf(line.color);
      pen.setLineDash(line.dash || []);
      pen.beginPath();
      if (line.foot) { pen.moveTo(x, b.bottom); pen.lineTo(x, b.bottom - 7); } else { pen.moveTo(x, b.top); pen.lineTo(x, b.bottom); }
      pen.stroke();
      pen.setLineDash([]);
    }
    if (this.stack) this.drawStack(pen, yOf); else for (const series of this.series) this.drawSeries(pen, series, yOf);
    for (const mark of this.marks) {
      const x = this.xOf(this.dotAt(this.series[0], mark.step));
      if (x < b.left - 4 || x > b.right + 4) continue;
      pen.strokeStyle = pen.fillStyle = colorOf(mark.color);
      pen.beginPath();
      if (mark.value === undefined) { pen.moveTo(x - 4, b.bottom); pen.lineTo(x + 4, b.bottom); pen.lineTo(x, b.bottom - 7); pen.fill(); }
      else { pen.arc(x, Math.max(b.top + 5, yOf(mark.value)), 4, 0, 7); pen.lineWidth = 1.5; pen.stroke(); pen.lineWidth = 1; }
    }
    pen.restore();
    if (view.hover !== null && view.hover >= low && view.hover <= high) {
      const x = Math.round(this.xOf(view.hover)) + 0.5;
      pen.strokeStyle = soft; pen.globalAlpha = 0.6;
      pen.beginPath(); pen.moveTo(x, b.top); pen.lineTo(x, b.bottom); pen.stroke();
      pen.globalAlpha = 1;
    }
    if (this.from !== null && this.from !== undefined && this.to) {
      pen.fillStyle = colorOf("--accent"); pen.globalAlpha = 0.15;
      pen.fillRect(Math.min(this.from, this.to), b.top, Math.abs(this.to - this.from), b.bottom - b.top);
      pen.globalAlpha = 1;
    }
  }

  drawSeries(pen, series, yOf) {
    const color = colorOf(series.color), [low, high] = stretch(), axis = axisOf(series), b = this.box;
    pen.strokeStyle = pen.fillStyle = color;
    if (series.mean) {
      const begin = Math.max(0, indexOf(axis, low) - 1), end = Math.min(axis.length, indexOf(axis, high) + 1);
      const dense = end - begin > 2 * (b.right - b.left), line = smoothed(series.mean, this.canSmooth ? view.smooth : 0);
      if (dense || series.least || line !== series.mean) this.drawBand(pen, series, begin, end, yOf);
      pen.lineWidth = 1.6;
      pen.beginPath();
      let open = false, column = NaN, sum = 0, count = 0;
      const put = (x, y) => { if (open) pen.lineTo(x, y); else pen.moveTo(x, y); open = true; };
      let alone = [];
      for (let i = begin; i < end; i++) {
        const value = line[i], x = this.xOf(axis[i]);
        if (!Number.isFinite(value)) { open = false; continue; }
        if (!dense) {
          const before = i > begin && Number.isFinite(line[i - 1]), after = i + 1 < end && Number.isFinite(line[i + 1]);
          if (!before && !after) alone.push([x, yOf(value)]);
          put(x, yOf(value));
          continue;
        }
        if (Math.floor(x) !== column && count) { put(column + 0.5, yOf(sum / count)); sum = count = 0; }
        column = Math.floor(x); sum += value; count++;
      }
      if (count) put(column + 0.5, yOf(sum / count));
      pen.stroke();
      for (const [x, y] of alone) { pen.beginPath(); pen.arc(x, y, 2.5, 0, 7); pen.fill(); }
    }
    for (const dot of series.dots || []) {
      pen.beginPath(); pen.arc(this.xOf(this.dotAt(series, dot[0])), yOf(dot[1]), 3.2, 0, 7);
      pen.fillStyle = colorOf("--card"); pen.fill(); pen.lineWidth = 1.6; pen.stroke();
    }
  }

  // From the least to the most, a pixel column each.
  drawBand(pen, series, begin, end, yOf) {
    const axis = axisOf(series), least = series.least || series.mean, most = series.most || series.mean;
    pen.globalAlpha = 0.28; pen.lineWidth = 1;
    pen.beginPath();
    let column = NaN, bottom = Infinity, top = -Infinity;
    const put = () => { if (bottom <= top) { pen.moveTo(column + 0.5, yOf(bottom) + 0.5); pen.lineTo(column + 0.5, yOf(top) - 0.5); } };
    for (let i = begin; i < end; i++) {
      const x = Math.floor(this.xOf(axis[i]));
      if (x !== column) { put(); column = x; bottom = Infinity; top = -Infinity; }
      if (Number.isFinite(least[i])) bottom = Math.min(bottom, least[i]);
      if (Number.isFinite(most[i])) top = Math.max(top, most[i]);
    }
    put();
    pen.stroke();
    pen.globalAlpha = 1;
  }

  drawStack(pen, yOf) {
    const columns = this.columns(), b = this.box, colors = this.series.map(series => colorOf(series.color));
    columns.forEach((column, at) => {
      let sum = 0;
      column.forEach((part, i) => {
        if (!(part > 0)) return;
        pen.fillStyle = colors[i];
        pen.fillRect(b.left + at, yOf(sum + part), 1.05, yOf(sum) - yOf(sum + part) + 0.3);
        sum += part;
      });
    });
  }
}
