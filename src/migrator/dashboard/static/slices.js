// The slices of the GPU over time as SVG: what was planned above what is held, on one axis.

import { ticks } from "./charts.js";
import { moment, size } from "./words.js";

const SPACE = "http://www.w3.org/2000/svg";
const LEFT = 54;
const RIGHT = 6;
const ROW = 13;
const GAP = 16;
const AXIS = 16;

const draw = (tag, attributes, ...children) => {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

/** How wide a unit is, in memory slices. */
const widthOf = (run, unit) =>
  unit.start === null
    ? (unit.gpcs * run.board.memory) / run.board.compute
    : (run.board.widths[Math.round(unit.gpcs)] ?? Math.max(1, Math.round(unit.gpcs)));

/** Shares have no place: each gets the lowest stretch that is free when it begins. */
const placed = (run, bars) => {
  let there = [];
  const lanes = new Map();
  for (const bar of [...bars].sort((a, b) => a.from - b.from)) {
    there = there.filter((each) => each.to > bar.from + 1e-6);
    if (bar.start !== null) bar.low = bar.start;
    else if (lanes.has(bar.life)) bar.low = lanes.get(bar.life);
    else {
      let low = 0;
      for (const each of [...there].sort((a, b) => a.low - b.low)) {
        if (each.low - low >= bar.width - 1e-6) break;
        low = Math.max(low, each.low + each.width);
      }
      bar.low = Math.max(0, Math.min(low, run.board.memory - bar.width));
      lanes.set(bar.life, bar.low);
    }
    there.push(bar);
  }
  return bars;
};

const tenantOf = (task) => (task ? task.slice(0, task.lastIndexOf("/")) : null);

const plannedBars = (run, number) => {
  const [began] = run.span(number);
  const slot = run.about.slot_s;
  return placed(run, run.plannedOf(number).map((each) => ({
    from: began + each.from * slot,
    to: began + each.until * slot,
    start: each.start,
    gpcs: each.gpcs,
    width: widthOf(run, each),
    life: `${each.task}/${each.gpcs}/${each.number ?? 0}/${each.start}/${each.from}`,
    tenant: tenantOf(each.task),
    state: each.task === null ? "idle" : each.task.endsWith("/retraining") ? "training" : "ready",
  })));
};

const heldBars = (run, number) =>
  placed(run, run.unitsOf(number).map((each) => ({
    from: each.from_s,
    to: each.to_s ?? run.now,
    start: each.start,
    gpcs: each.gpcs,
    width: widthOf(run, each),
    life: each.unit,
    tenant: each.tenant,
    state: each.state,
    parts: each.parts_s,
  })));

/** How a state looks: full serves, hatched retrains, light is on its way in or out. */
const look = (run, bar) => {
  if (bar.tenant === null) {
    const making = bar.state === "creating" || bar.state === "destroying";
    return { fill: making ? "url(#hatch-none)" : "var(--faint)", stroke: "var(--none)" };
  }
  const tones = run.tones(bar.tenant);
  if (bar.state === "ready") return { fill: tones.fill, stroke: "var(--paper)", ink: tones.ink };
  const hue = run.tenants.indexOf(bar.tenant) % run.palette.length;
  if (bar.state === "training") return { fill: `url(#hatch-${hue})`, stroke: tones.fill, ink: "#1a1a1a" };
  const dash = bar.state === "draining" || bar.state === "stopping" || bar.state === "idle" ? "1 2" : "3 2";
  return { fill: tones.light, stroke: tones.fill, dash, ink: "#1a1a1a" };
};

const patterns = (run) => {
  const hatch = (id, ground, stripe) =>
    draw("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      draw("rect", { width: 6, height: 6, fill: ground }),
      draw("rect", { width: 2, height: 6, fill: stripe }));
  return draw("defs", {},
    hatch("hatch-none", "var(--faint)", "var(--none)"),
    ...run.palette.map((tones, hue) => hatch(`hatch-${hue}`, tones.light, tones.fill)));
};

const said = (run, bar) => {
  const parts = Object.entries(bar.parts ?? {})
    .filter(([name]) => name !== "total")
    .map(([name, value]) => `${name.replace(/_s$/, "")} ${value.toFixed(2)} s`);
  return `${bar.tenant ?? "no tenant"}, ${size(run, bar)}, ${bar.state}, ${moment(run, bar.from)} to ${moment(run, bar.to)}${parts.length ? `; ${parts.join(", ")}` : ""}`;
};

export class Slices {
  constructor() {
    this.element = draw("svg", { class: "slices", role: "img", tabindex: 0 });
  }

  /** Draw the windows of a span. */
  draw(run, range, numbers) {
    const width = this.element.clientWidth;
    if (width < 2 * (LEFT + RIGHT)) return; // not laid out yet: it is drawn again when it is
    const lane = ROW * run.board.memory;
    const height = 2 * lane + GAP + AXIS + 4;
    const x = (at) => LEFT + ((at - range[0]) / (range[1] - range[0])) * (width - LEFT - RIGHT);
    const held = numbers.length === 1 ? heldBars(run, numbers[0]) : heldBars(run, null);
    const planned = numbers.flatMap((number) => plannedBars(run, number));
    const marks = numbers.flatMap((number) => [run.span(number)[0]]);
    this.element.setAttribute("height", height);
    this.element.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.element.replaceChildren(
      patterns(run),
      this.ground(run, x, 0, lane, "planned", width),
      ...this.bars(run, planned, x, 0, range),
      this.ground(run, x, lane + GAP, lane, "held", width),
      ...this.bars(run, held, x, lane + GAP, range),
      ...this.axis(run, x, range, 2 * lane + GAP, width, marks),
      ...this.now(run, x, range, 2 * lane + GAP),
    );
    const present = held.filter((bar) => bar.from <= run.now && bar.to >= run.now - 1);
    const words = present.map((bar) => `${bar.tenant ?? "no tenant"} ${size(run, bar)} ${bar.state}`);
    this.element.setAttribute("aria-label", `Slices, planned above and held below. Held: ${words.join("; ") || "nothing now"}.`);
  }

  ground(run, x, top, lane, name, width) {
    const group = draw("g", {});
    group.append(draw("rect", { x: LEFT, y: top, width: width - LEFT - RIGHT, height: lane, fill: "var(--faint)" }));
    for (let slice = 0; slice < run.board.memory; slice += 1) {
      const y = top + lane - (slice + 0.5) * ROW;
      group.append(draw("text", { x: LEFT - 4, y: y + 3.5, "text-anchor": "end", class: "soft" }, `${slice}`));
      if (slice) {
        group.append(draw("line", { x1: LEFT, x2: width - RIGHT, y1: y + ROW / 2, y2: y + ROW / 2, stroke: "var(--line)", "stroke-width": 0.5 }));
      }
    }
    const middle = top + lane / 2;
    group.append(draw("text", { x: 10, y: middle, "text-anchor": "middle", transform: `rotate(-90 10 ${middle})`, dy: 3 }, name));
    return group;
  }

  bars(run, bars, x, top, range) {
    const lane = ROW * run.board.memory;
    const found = [];
    for (const bar of bars) {
      const [left, right] = [x(Math.max(bar.from, range[0])), x(Math.min(bar.to, range[1]))];
      if (right <= left || bar.to < range[0] || bar.from > range[1]) continue;
      const style = look(run, bar);
      const height = bar.width * ROW;
      const y = top + lane - (bar.low * ROW + height);
      const rect = draw("rect", {
        x: left, y: y + 0.5, width: Math.max(1.2, right - left - 0.5), height: Math.max(1, height - 1),
        fill: style.fill, stroke: style.stroke, "stroke-width": 0.8, ...(style.dash ? { "stroke-dasharray": style.dash } : {}),
      });
      const group = draw("g", { "data-state": bar.state, "data-tenant": bar.tenant ?? "" }, draw("title", {}, said(run, bar)), rect);
      const label = `${size(run, bar)} ${bar.tenant ?? ""}`;
      const fits = [label, size(run, bar)].find((text) => text.length * 5.8 < right - left - 4);
      if (fits && height >= 12 && bar.tenant) {
        group.append(draw("text", { x: left + 4, y: y + height / 2 + 3.5, style: `fill:${style.ink}` }, fits));
      }
      found.push(group);
    }
    return found;
  }

  axis(run, x, range, top, width, marks) {
    const found = [];
    for (const at of marks) {
      if (at > range[0] + 0.5) found.push(draw("line", { x1: x(at), x2: x(at), y1: 0, y2: top, stroke: "var(--soft)", "stroke-dasharray": "2 3" }));
    }
    for (const at of ticks(range[0] - run.zero, range[1] - run.zero, (width - LEFT) / 60)) {
      const place = x(at + run.zero);
      if (place > width - 14) continue;
      found.push(draw("text", { x: place, y: top + 13, "text-anchor": "middle", class: "soft" }, `${Math.round(at)} s`));
    }
    return found;
  }

  now(run, x, range, top) {
    if (run.ended !== null || run.now < range[0] || run.now > range[1]) return [];
    const at = x(run.now);
    const end = at > x(range[1]) - 30;
    return [
      draw("line", { class: "now", x1: at, x2: at, y1: 0, y2: top, stroke: "var(--ink)", "stroke-width": 1.4 }),
      draw("text", { x: end ? at - 3 : at + 3, y: top / 2 + 3.5, "text-anchor": end ? "end" : "start" }, "now"),
    ];
  }
}
