// Small charts over time on canvases: light enough to be drawn anew every second.

import { count, make, percent, rate } from "./words.js";
import { PARTS, parts } from "./run.js";

const LEFT = 34;
const RIGHT = 6;
const BOTTOM = 14;
const TOP = 4;

const theme = () => {
  const style = getComputedStyle(document.documentElement);
  const known = new Map(); // asking the style for every bar would take longer than drawing them
  return (name) => {
    if (!known.has(name)) known.set(name, style.getPropertyValue(`--${name}`).trim());
    return known.get(name);
  };
};

const nice = (value) => {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value) ?? value;
};

/** Round moments inside a span, at most `most` of them. */
export const ticks = (from, to, most) => {
  const step = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 36000, 86400].find(
    (each) => (to - from) / each <= most,
  ) ?? (to - from);
  const found = [];
  for (let at = Math.ceil(from / step - 1e-9) * step; at <= to + 1e-9; at += step) found.push(at);
  return found;
};

/** A canvas with its frame: `paint` draws, `read` says what is there at a moment. */
export class Chart {
  constructor(title, paint, read, onCursor) {
    this.paint = paint;
    this.read = read;
    this.output = make("output");
    this.canvas = make("canvas", { role: "img", tabindex: 0, "aria-label": title });
    this.title = title;
    this.element = make("figure", {}, make("figcaption", {}, make("span", { text: title }), this.output), this.canvas);
    this.canvas.addEventListener("pointermove", (event) => onCursor(this.at(event.offsetX)));
    this.canvas.addEventListener("pointerleave", () => onCursor(null));
    this.canvas.addEventListener("blur", () => onCursor(null));
    this.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step || !this.range) return;
      event.preventDefault();
      const [from, to] = this.range;
      const by = Math.max(1, (to - from) / 100);
      onCursor(Math.min(to, Math.max(from, (this.cursor ?? (step > 0 ? from - by : to)) + step * by)));
    });
  }

  at(x) {
    if (!this.range) return null;
    const [from, to] = this.range;
    return from + ((x - LEFT) / Math.max(1, this.canvas.clientWidth - LEFT - RIGHT)) * (to - from);
  }

  /** Draw a span of the run; `cursor` is a moment somebody points at. */
  draw(run, range, cursor) {
    this.range = range;
    this.cursor = cursor;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width) return;
    const scale = devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
    }
    const pen = this.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "10px system-ui, sans-serif";
    const [from, to] = range;
    const area = { left: LEFT, right: width - RIGHT, top: TOP, bottom: height - BOTTOM };
    const x = (at) => area.left + ((at - from) / (to - from)) * (area.right - area.left);
    const frame = { pen, x, area, range, colour: theme(), y: null };
    frame.scaleTo = (most, text) => this.grid(frame, run, most, text);
    this.paint(frame, run);
    this.line(frame, run.ended === null ? run.now : null, "ink");
    this.line(frame, cursor, "soft");
    const words = this.read(run, cursor, range);
    this.output.textContent = words;
    this.canvas.setAttribute("aria-label", `${this.title}: ${words}`);
  }

  grid({ pen, x, area, range, colour }, run, most, text) {
    const top = nice(most);
    const y = (value) => area.bottom - (value / top) * (area.bottom - area.top);
    pen.strokeStyle = colour("line");
    pen.fillStyle = colour("soft");
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const value of [0, top / 2, top]) {
      pen.beginPath();
      pen.moveTo(area.left, Math.round(y(value)) + 0.5);
      pen.lineTo(area.right, Math.round(y(value)) + 0.5);
      pen.stroke();
      if (value || !text) pen.fillText(text ? text(value) : `${value}`, area.left - 4, Math.max(y(value), 6));
    }
    pen.textAlign = "center";
    pen.textBaseline = "alphabetic";
    const zero = run.zero;
    for (const at of ticks(range[0] - zero, range[1] - zero, (area.right - area.left) / 55)) {
      const place = x(at + zero);
      pen.fillText(`${Math.round(at)} s`, Math.min(area.right - 10, Math.max(area.left + 8, place)), area.bottom + 11);
    }
    return y;
  }

  line({ pen, x, area, range, colour }, at, name) {
    if (at === null || at === undefined || at < range[0] || at > range[1]) return;
    pen.strokeStyle = colour(name);
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x(at), area.top - 3);
    pen.lineTo(x(at), area.bottom);
    pen.stroke();
  }
}

/** The places of a tenant's seconds inside a span. */
const inside = (run, seconds, [from, to]) => [
  Math.max(0, seconds.find(from - run.zero) - 1),
  Math.min(seconds.length, seconds.find(to - run.zero)),
];

const clipped = ({ pen, area }, draw) => {
  pen.save();
  pen.beginPath();
  pen.rect(area.left, area.top - 2, area.right - area.left, area.bottom - area.top + 2);
  pen.clip();
  draw();
  pen.restore();
};

/** What came against the forecast's band. */
export const arrivals = (tenant, window, onCursor) =>
  new Chart(
    "arrivals per second",
    (frame, run) => {
      const seconds = run.secondsOf(tenant, window());
      const [first, last] = inside(run, seconds, frame.range);
      const { pen, x, colour } = frame;
      let most = 1;
      for (let at = first; at < last; at += 1) {
        most = Math.max(most, seconds.received[at] / seconds.span_s[at], seconds.forecast_high[at] ?? 0, seconds.forecast_mean[at] ?? 0);
      }
      const y = frame.scaleTo(most);
      const moment = (at) => seconds.second[at] + run.zero;
      clipped(frame, () => {
        pen.fillStyle = colour("none");
        pen.globalAlpha = 0.45;
        for (let at = first; at < last; at += 1) {
          const [low, high] = [seconds.forecast_low[at], seconds.forecast_high[at]];
          if (low === null || high === null || low === undefined) continue;
          const left = x(moment(at));
          pen.fillRect(left, y(high), x(moment(at) + seconds.span_s[at]) - left + 0.3, y(low) - y(high) + 0.5);
        }
        pen.globalAlpha = 1;
        steps(pen, first, last, (at) => x(moment(at)), (at) => x(moment(at) + seconds.span_s[at]), (at) => {
          const value = seconds.forecast_mean[at];
          return value === null || value === undefined ? null : y(value);
        }, colour("soft"), [4, 3], 1.2);
        steps(pen, first, last, (at) => x(moment(at)), (at) => x(moment(at) + seconds.span_s[at]), (at) => y(seconds.received[at] / seconds.span_s[at]), run.tones(tenant).dark, [], 1.5);
      });
    },
    (run, cursor, range) => {
      const seconds = run.secondsOf(tenant, window());
      const [first, last] = inside(run, seconds, range);
      const at = cursor === null ? last - 1 : seconds.find(cursor - run.zero + 1e-6) - 1;
      if (at < first || at >= last) return "";
      const mean = seconds.forecast_mean[at];
      const band = seconds.forecast_low[at] === null || mean === null ? "" : ` (${rate(seconds.forecast_low[at])} to ${rate(seconds.forecast_high[at])})`;
      const said = `${rate(seconds.received[at] / seconds.span_s[at])} came`;
      return mean === null || mean === undefined ? said : `${said}, ${rate(mean)}${band} expected`;
    },
    onCursor,
  );

const steps = (pen, first, last, left, right, y, colour, dash, width) => {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.beginPath();
  let drawn = false;
  for (let at = first; at < last; at += 1) {
    const value = y(at);
    if (value === null) {
      drawn = false;
      continue;
    }
    if (drawn) pen.lineTo(left(at), value);
    else pen.moveTo(left(at), value);
    pen.lineTo(right(at), value);
    drawn = true;
  }
  pen.stroke();
  pen.setLineDash([]);
};

const STACKED = ["good", "unjudged", "wrong", "late", "dropped", "lost", "failed", "open"];

const at_ = (seconds, place) => ({
  received: seconds.received[place],
  in_time: seconds.in_time[place],
  late: seconds.late[place],
  dropped: seconds.dropped[place],
  failed: seconds.failed[place] ?? 0,
  wrong: seconds.wrong[place] ?? 0,
  unjudged: seconds.wrong[place] === null ? seconds.in_time[place] ?? 0 : 0,
  reconfiguring: seconds.reconfiguring[place] ?? 0,
});

/** What became of the requests: per second, or per window where only that is known. */
export const fates = (tenant, window, onCursor) =>
  new Chart(
    "outcomes",
    (frame, run) => {
      const bars = fateBars(run, tenant, window(), frame.range);
      const { pen, x, colour } = frame;
      const y = frame.scaleTo(Math.max(1, ...bars.map((bar) => bar.received / bar.span)));
      clipped(frame, () => {
        for (const bar of bars) {
          let height = 0;
          const [left, right] = [x(bar.from), x(bar.from + bar.span)];
          for (const name of STACKED) {
            const value = bar.parts[name] / bar.span;
            if (!value) continue;
            pen.fillStyle = colour(name);
            pen.fillRect(left, y(height + value), Math.max(0.6, right - left - (right - left > 5 ? 1 : 0)), y(height) - y(height + value));
            height += value;
          }
        }
      });
    },
    (run, cursor, range) => {
      const bars = fateBars(run, tenant, window(), range);
      const bar = cursor === null ? null : bars.find((each) => each.from <= cursor && cursor < each.from + each.span);
      const found = bar ? bar.parts : parts(run.fate(tenant, window()));
      const received = bar ? bar.received : run.fate(tenant, window()).received;
      return STACKED.filter((name) => found[name] >= 0.5)
        .map((name) => `${PARTS[name]} ${bar ? count(found[name]) : percent(found[name], received)}`)
        .slice(0, 4)
        .join(", ");
    },
    onCursor,
  );

const fateBars = (run, tenant, window, range) => {
  const seconds = run.secondsOf(tenant, window);
  const [first, last] = inside(run, seconds, range);
  if (last > first && seconds.in_time[last - 1] !== null) {
    const bars = [];
    for (let at = first; at < last; at += 1) {
      const fate = at_(seconds, at);
      bars.push({ from: seconds.second[at] + run.zero, span: seconds.span_s[at], received: fate.received, parts: parts(fate) });
    }
    return bars;
  }
  return run.numbers
    .filter((number) => run.span(number)[1] > range[0] && run.span(number)[0] < range[1])
    .map((number) => {
      const fate = run.fate(tenant, number);
      const [from, to] = run.span(number);
      return { from, span: to - from, received: fate.received, parts: parts(fate) };
    });
};

/** Accuracy as it was known at every moment, with a mark where a model was swapped in. */
export const accuracy = (tenant, onCursor) =>
  new Chart(
    "accuracy",
    (frame, run) => {
      const { pen, x, colour, range } = frame;
      const y = frame.scaleTo(1, (value) => `${Math.round(100 * value)}%`);
      const known = run.accuracies(tenant);
      const moments = known.map(([at], place) => [Math.max(at, range[0]), place + 1 < known.length ? known[place + 1][0] : Math.min(run.now, range[1])]);
      clipped(frame, () => {
        steps(pen, 0, known.length, (at) => x(moments[at][0]), (at) => x(Math.max(moments[at][0], moments[at][1])), (at) => (moments[at][1] < range[0] ? null : y(known[at][1])), run.tones(tenant).dark, [], 2);
      });
      pen.textAlign = "left";
      for (const [at, value, version] of known) {
        if (version === null || at < range[0] - 1 || at > range[1]) continue;
        const place = Math.max(x(at), frame.area.left);
        pen.fillStyle = colour("ink");
        pen.beginPath();
        pen.moveTo(place, y(value) - 6);
        pen.lineTo(place + 4, y(value));
        pen.lineTo(place, y(value) + 6);
        pen.lineTo(place - 4, y(value));
        pen.fill();
        pen.fillText(`v${version}`, Math.min(place + 6, frame.area.right - 16), Math.max(9, y(value) - 6));
      }
    },
    (run, cursor) => {
      const known = run.accuracies(tenant).filter(([at]) => cursor === null || at <= cursor);
      if (!known.length) return "";
      const version = known.filter((each) => each[2] !== null).at(-1);
      return `${(100 * known.at(-1)[1]).toFixed(1)}%${version ? `, version ${version[2]}` : ""}`;
    },
    onCursor,
  );
