"""`shoal report` in a real Chromium: the page opens without a word on the console, its charts are drawn, a long run opens at
once, and no text of a user does anything. The folders of runs are made here, as shoal train writes them.

Chromium is found by SHOAL_CHROMIUM or in PATH (apt-get install chromium; tools/setup.sh browser). Where there is none, what
needs one is skipped, and the test says so.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import random
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

SHOAL = os.environ.get("SHOAL_COMMAND", str(Path(__file__).parents[2] / "build/dev/apps/cli/shoal"))
BROWSER = os.environ.get("SHOAL_CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
BLUE = (0x25, 0x63, 0xA8)  # of the first run's curves in the light page
ORANGE = (0xC2, 0x57, 0x1A)  # of the second's
EVIL = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"


def write_run(folder, steps, loss=lambda step: 2 + 3 / step, **about):
    """What a run of two ranks leaves, in about the time that a disk needs."""
    folder.mkdir(parents=True)
    rng = random.Random(7)
    with open(folder / "metrics.jsonl", "w") as file:
        for step in range(1, steps + 1):
            ms = 100 + rng.random() * 9
            value = loss(step)
            file.write(
                f'{{"step": {step}, "loss": {"null" if value is None else repr(value)}, "grad_norm": {1 + rng.random() / 5!r}, "lr": 0.0003, '
                f'"loss_scale": 1, "skipped": false, "tokens": {step * 512}, "tokens_per_s": {512e3 / ms!r}, "step_ms": {ms!r}, '
                '"wait_comm_ms": 12.5, "wait_host_ms": 0, "wait_disk_ms": 0, "wait_weights_ms": 7.25, "wait_gradients_ms": 4.25, '
                '"wait_losses_ms": 1, "carried_ms": 40, "data_ms": 0.5}\n'
            )
    begin = 1.8e9
    events = [{"event": "start", "step": 0, "time": begin, "ranks": 2, "threads": 1, "notices": []}]
    if steps > 2:
        events.append({"event": "save", "step": steps // 2, "time": begin + steps * 0.05, "ms": 40.0, "path": str(folder)})
        events.append({"event": "resume", "step": steps // 2, "time": begin + steps * 0.06, "ranks": 4, "threads": 1})
    events.append({"event": "end", "step": steps, "time": begin + steps * 0.1})
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    waits = {"wait_comm_ms": [29.0, 1.0], "wait_host_ms": [0, 0], "wait_disk_ms": [0, 0], "data_ms": [1, 1]}
    (folder / "ranks.jsonl").write_text(json.dumps({"step": steps, "steps": max(1, steps), **waits}) + "\n")
    (folder / "run.json").write_text(json.dumps({"model": "toy", "data": "text:x", "steps": steps, "ranks": 2, **about}))
    return folder


def report(*words, code=0):
    done = subprocess.run([SHOAL, "report", *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def browse(address, *words):
    """What Chromium says on its console, and what it prints."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--force-color-profile=srgb",
             f"--user-data-dir={profile}", *words, address],
            capture_output=True, timeout=240,
        )
    console = [line for line in done.stderr.decode(errors="replace").splitlines() if "CONSOLE" in line]
    return console, done.stdout.decode(errors="replace")


class Tab:
    """A page that stays open: told what to do over Chromium's debugging pipe, with everything that its console said."""

    def __init__(self, address):
        self.profile = tempfile.TemporaryDirectory()
        told, self.tell = os.pipe()
        self.hear, said = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (told, said)]  # not on the numbers that they get

        def place():
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--window-size=1000,900", f"--user-data-dir={self.profile.name}", "about:blank"],
            preexec_fn=place, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for end in (told, said, *ends):
            os.close(end)
        self.number, self.session, self.heard, self.console = 0, None, b"", []
        page = next(target for target in self.ask("Target.getTargets")["targetInfos"] if target["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for part in ("Runtime", "Log", "Page"):
            self.ask(f"{part}.enable")
        self.ask("Page.navigate", url=address)
        until = time.monotonic() + 120
        while not self.shows():
            assert time.monotonic() < until, f"nothing is shown at {address}: {self.console}"
            time.sleep(0.05)

    def shows(self):
        """False also while the page before goes and takes the question with it."""
        try:
            return self.value("document.documentElement?.dataset.shown")
        except ConnectionResetError:
            return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.tell)
        os.close(self.hear)
        self.profile.cleanup()

    def ask(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params} | ({"sessionId": self.session} if self.session else {})
        os.write(self.tell, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + 120
        while True:
            while b"\0" not in self.heard:
                assert select.select([self.hear], [], [], max(0, until - time.monotonic()))[0], f"no answer to {method}"
                part = os.read(self.hear, 1 << 20)
                assert part, f"Chromium ended before it answered {method}"
                self.heard += part
            text, self.heard = self.heard.split(b"\0", 1)
            answer = json.loads(text)
            if answer.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                self.console.append(answer["params"])
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise ConnectionResetError(f"{method}: {answer['error']}")
                return answer["result"]

    def value(self, expression):
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, expression):
        until = time.monotonic() + 120
        while not self.value(expression):
            assert time.monotonic() < until, f"{expression} did not come true: {self.value('document.body.innerText')[:600]}"
            time.sleep(0.1)

    def mouse(self, kind, x, y, count=1):
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="none" if kind == "mouseMoved" else "left", clickCount=count)

    def frame(self):
        """What was asked to be drawn, is."""
        self.ask("Runtime.evaluate", expression="new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))", awaitPromise=True)

    def drag(self, left, right):
        """Over the first chart, from one share of its stretch of steps to another; then the mouse leaves."""
        at = self.value("charts[0].canvas.scrollIntoView(), (({left, top}, box) => [left + box.left, top, box.right - box.left])(charts[0].canvas.getBoundingClientRect(), charts[0].box)")
        xs, y = [at[0] + share * at[2] for share in (left, right)], at[1] + 60
        self.mouse("mouseMoved", xs[0], y)
        self.mouse("mousePressed", xs[0], y)
        self.mouse("mouseMoved", sum(xs) / 2, y)
        self.mouse("mouseMoved", xs[1], y)
        self.mouse("mouseReleased", xs[1], y)
        self.leave()

    def leave(self):
        self.mouse("mouseMoved", 2, 2)
        self.wait("view.hover === null")
        self.frame()

    def picture(self):
        return self.value("charts[0].canvas.toDataURL()")


def look(page):
    """The page's DOM after its script, with a clean console."""
    console, dom = browse(page.as_uri(), "--dump-dom")
    assert not console, console
    assert "data-shown=" in dom, dom[:500]
    return dom


def pixels(page, folder, size=(860, 640)):
    """A picture of the page's top: rows of (red, green, blue)."""
    picture = folder / "picture.png"
    console, _ = browse(page.as_uri(), f"--screenshot={picture}", f"--window-size={size[0]},{size[1]}")
    assert not console, console
    return decode_png(picture.read_bytes())


def decode_png(data):
    """Eight bits a channel, not interlaced, as Chromium writes them."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, width, height, channels = 8, b"", 0, 0, 0
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += 12 + length
        if kind == b"IHDR":
            width, height, depth, color, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and interlaced == 0, (depth, interlaced)
            channels = {2: 3, 6: 4}[color]
        elif kind == b"IDAT":
            packed += body
    raw, rows, before, row_bytes = zlib.decompress(packed), [], bytearray(width * channels), width * channels
    for y in range(height):
        kind = raw[y * (row_bytes + 1)]
        row = bytearray(raw[y * (row_bytes + 1) + 1 : (y + 1) * (row_bytes + 1)])
        for i in range(row_bytes):
            left = row[i - channels] if i >= channels else 0
            above, corner = before[i], before[i - channels] if i >= channels else 0
            if kind == 1:
                row[i] = (row[i] + left) & 255
            elif kind == 2:
                row[i] = (row[i] + above) & 255
            elif kind == 3:
                row[i] = (row[i] + (left + above) // 2) & 255
            elif kind == 4:
                guess = left + above - corner
                nearest = min((abs(guess - left), 0, left), (abs(guess - above), 1, above), (abs(guess - corner), 2, corner))[2]
                row[i] = (row[i] + nearest) & 255
        before = row
        rows.append([tuple(row[x : x + 3]) for x in range(0, row_bytes, channels)])
    return rows


def count_near(rows, color, distance=40):
    return sum(sum(abs(a - b) for a, b in zip(pixel, color)) < distance for row in rows for pixel in row)


def test_page_of_a_run(folder):
    run = write_run(folder / "läuft & läuft", 400, model=EVIL)
    page = Path(report(run).strip())
    assert page == run / "report.html", page
    if not BROWSER:
        return
    dom = look(page)
    assert int(re.search(r'data-charts="(\d+)"', dom)[1]) >= 5, dom[:400]
    assert "<title>läuft &amp; läuft · Shoal</title>" in dom, re.search("<title>.*</title>", dom)
    assert "<img" not in dom
    assert "taken'&lt;/script&gt;" in dom, "shown as the text that it is"
    assert "The others wait for rank 1" in dom
    drawn = count_near(pixels(page, folder), BLUE)
    empty = Path(report(write_run(folder / "empty", 0)).strip())
    assert "No step has been taken yet." in look(empty)
    assert drawn > count_near(pixels(empty, folder), BLUE) + 1000, drawn


def test_odd_runs(folder):
    cases = {
        "one step": write_run(folder / "one", 1),
        "nothing but NaN": write_run(folder / "nan", 60, loss=lambda step: None),
        "a folder with metrics alone": folder / "bare",
        "a line that is cut off": write_run(folder / "cut", 30),
    }
    cases["a folder with metrics alone"].mkdir()
    (folder / "bare/metrics.jsonl").write_text('{"step": 5, "loss": 1.5}\n{"step": 9, "loss": 1.25}\n')
    with open(folder / "cut/metrics.jsonl", "a") as file:
        file.write('{"step": 31, "lo')
    for name, run in cases.items():
        page = Path(report(run).strip())
        if BROWSER:
            dom = look(page)
            if name == "a line that is cut off":
                assert "the last line of metrics.jsonl is cut off" in dom, name
    assert "holds no metrics.jsonl and no run.json" in report(folder, code=2)
    assert "is not there, or is no folder" in report(folder / "none", code=2)
    assert json.loads(report(folder / "one", "--json"))["runs"][0]["summary"]["last_loss"] == 5.0


def test_two_runs(folder):
    first = write_run(folder / "first", 300)
    second = write_run(folder / "second", 200, loss=lambda step: 2 + 3 / step + (0.5 if step > 120 else 0), seed=2)
    page = folder / "both.html"
    assert report(first, second, "--out", page).strip() == str(page)
    found = json.loads(report(first, second, "--json"))["comparisons"][0]
    assert found["equal_until"] == 120 and found["steps"] == 200, found
    if not BROWSER:
        return
    assert "Equal to the bit until step 120." in look(page)
    rows = pixels(page, folder, (860, 1240))
    assert count_near(rows, BLUE) > 500 and count_near(rows, ORANGE) > 500


def test_long_run_opens_at_once(folder):
    steps = 1_000_000 if os.environ.get("SHOAL_TEST_SIZE") == "whole" else 100_000
    page = Path(report(write_run(folder / "long", steps)).strip())
    size = page.stat().st_size
    assert size < 3e6, size
    if not BROWSER:
        return
    # By the page's own clock, from its first byte to its charts; the best of three on a busy machine.
    shown = min(int(re.search(r'data-shown="(\d+)"', look(page))[1]) for _ in range(3))
    print(f"{steps} steps: a page of {size / 1e6:.2f} MB, shown after {shown} ms")
    assert shown < 3000, shown


def test_zoom(folder):
    page = Path(report(write_run(folder / "run", 400)).strip())
    if not BROWSER:
        return
    with Tab(page.as_uri()) as tab:
        tab.leave()
        whole, button = tab.picture(), "document.querySelector('.whole').disabled"
        assert tab.value("[view.low, view.high]") == [None, None] and tab.value(button)
        tab.drag(0.5, 0.75)
        low, high = tab.value("[view.low, view.high]")
        assert abs(low - 200.5) < 3 and abs(high - 300.25) < 3, (low, high)  # of steps 1 to 400; a pixel is about one
        closer = tab.picture()
        assert closer != whole and not tab.value(button)
        tab.drag(0.75, 0.5)  # to the left, and closer still
        nearer = tab.value("[view.low, view.high]")
        assert abs(nearer[0] - (low + high) / 2) < 3 and abs(nearer[1] - (low + 3 * high) / 4) < 3, nearer
        tab.drag(0.5, 0.502)  # a click, and no drag
        assert tab.value("[view.low, view.high]") == nearer
        tab.value("document.querySelector('.whole').click()")
        tab.leave()
        assert tab.picture() == whole and tab.value(button)
        for kind in ("over time", "loss in powers of ten"):
            tab.value(f"[...document.querySelectorAll('.tools label')].find(each => each.textContent === '{kind}').querySelector('input').click()")
            tab.frame()
            assert tab.picture() != whole, kind
            tab.value(f"[...document.querySelectorAll('.tools label')].find(each => each.textContent === '{kind}').querySelector('input').click()")
        tab.frame()
        assert tab.picture() == whole
        assert not tab.console, tab.console


def test_live_page_renews_itself(folder):
    run = write_run(folder / "run", 50)
    (run / "events.jsonl").write_text((run / "events.jsonl").read_text().replace('{"event": "end", "step": 50', '{"event": "save", "step": 50'))
    if not BROWSER:
        return
    server = subprocess.Popen([SHOAL, "report", "--live", run], stdout=subprocess.PIPE, text=True)
    try:
        with Tab(server.stdout.readline().split()[0]) as tab:
            assert tab.value("document.querySelector('.state').textContent") == "live"
            tab.drag(0.5, 0.9)
            zoomed = tab.value("[view.low, view.high]")
            tab.value("document.querySelectorAll('.tools input')[1].click()")  # the loss in powers of ten
            with open(run / "metrics.jsonl", "a") as file:
                for step in range(51, 61):
                    file.write(f'{{"step": {step}, "loss": 1.5, "grad_norm": 1, "lr": 0.0003, "tokens": {step * 512}, "step_ms": 100}}\n')
            tab.wait("document.querySelector('.tiles b').textContent === '60'")
            assert tab.value("charts[0].series[0].steps.at(-1)") == 60
            # What the reader chose is left, and can be left again.
            assert tab.value("[view.low, view.high]") == zoomed and not tab.value("document.querySelector('.whole').disabled")
            assert tab.value("[...document.querySelectorAll('.tools input')].map(each => each.checked)") == [False, True, False]
            tab.value("document.querySelector('.whole').click()")
            tab.leave()
            assert tab.value("stretch()") == [1, 60]
            assert not tab.console, tab.console
            server.terminate()
            tab.wait("document.querySelector('.state').textContent === 'no answer'")
    finally:
        server.terminate()
        assert server.wait(timeout=30) == 0
        server.stdout.close()


def test_pictures(folder):
    run = write_run(folder / "run", 100)
    figure = folder / "figure.svg"
    report(run, "--svg", figure)
    assert figure.read_text().startswith("<svg ")
    if not BROWSER:
        environment = {**os.environ, "SHOAL_CHROMIUM": "", "PATH": "/nowhere"}
        done = subprocess.run([SHOAL, "report", run, "--png", folder / "a.png"], capture_output=True, text=True, env=environment)
        assert done.returncode == 2 and "drawn by Chromium, and none is in PATH" in done.stderr, done
        return
    picture = folder / "figure.png"
    report(run, "--png", picture)
    data = picture.read_bytes()
    assert struct.unpack(">II", data[16:24]) == (1800, 1120), data[:32]
    assert len(data) > 20_000, "a white picture has 5 kB"


def test_live(folder):
    run = write_run(folder / "run", 50)
    server = subprocess.Popen([SHOAL, "report", "--live", run], stdout=subprocess.PIPE, text=True)
    try:
        address = re.match(r"http://127\.0\.0\.1:(\d+)/ ", server.stdout.readline())
        port = int(address[1])

        def get(path, host):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", path, headers={"Host": host})
            answer = connection.getresponse()
            return answer.status, answer.read()

        status, body = get("/data.json", f"127.0.0.1:{port}")
        assert status == 200 and json.loads(body)["runs"][0]["summary"]["last_step"] == 50
        assert get("/", "evil.example")[0] == 403 and get("/data.json", f"evil.example:{port}")[0] == 403
        assert get("/../../etc/passwd", f"localhost:{port}")[0] == 404
        with open(run / "metrics.jsonl", "a") as file:
            file.write('{"step": 51, "loss": 1.5, "step_ms": 100}\n{"step": 52, "lo')
        until = time.monotonic() + 60
        while True:
            status, body = get("/data.json", f"127.0.0.1:{port}")
            if json.loads(body)["runs"][0]["summary"]["last_step"] == 51:
                break
            assert time.monotonic() < until, body[:300]
            time.sleep(0.2)
        if BROWSER:
            console, dom = browse(f"http://127.0.0.1:{port}/", "--dump-dom")
            assert not [line for line in console if "favicon" not in line], console
            assert "data-shown=" in dom and "renewed while the run goes on" in dom
    finally:
        server.terminate()
        assert server.wait(timeout=30) == 0
        server.stdout.close()


if __name__ == "__main__":
    tests = [test for name, test in list(globals().items()) if name.startswith("test_") and (len(sys.argv) < 2 or name in sys.argv[1:])]
    for test in tests:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            test(Path(folder))
        print(f"{test.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
    if not BROWSER:
        print("skipped: what Chromium shows; there is none in PATH: apt-get install chromium, or tools/setup.sh browser")
        sys.exit(77)
