// Numbers and moments in words, and elements made of them.

export const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") element.style.cssText = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((each) => each !== null && each !== undefined));
  return element;
};

// made once: making one takes longer than everything that is drawn with it
const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const CLOCK = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

export const count = (value) => (value === null || value === undefined ? "–" : WHOLE.format(value));

export const rate = (value) =>
  value === null || value === undefined ? "–" : value >= 100 ? value.toFixed(0) : value.toFixed(1);

export const percent = (part, whole) =>
  part === null || part === undefined || !whole ? "–" : `${((100 * part) / whole).toFixed(1)}%`;

/** Goodput of the requests received; null: unknown. */
export const goodput = (good, received) =>
  good === null ? `goodput unknown, ${count(received)} received` : `goodput ${count(good)} of ${count(received)} received, ${percent(good, received)}`;

export const seconds = (value) => {
  if (value === null || value === undefined) return "–";
  return value < 0.1 ? `${(1000 * value).toFixed(0)} ms` : `${value.toFixed(value < 10 ? 2 : 0)} s`;
};

/** How long in words that fit a table. */
export const lasting = (value) => {
  if (value === null || value === undefined) return "–";
  const whole = Math.max(0, Math.floor(value));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
};

/** A moment of a run: by the clock where it is live, else counted from its first window. */
export const moment = (run, at) => {
  if (run.simulated) return `${(at - run.zero).toFixed(0)} s`;
  return CLOCK.format(1000 * (run.about.began_s + at));
};

export const size = (run, unit) =>
  unit.start === null
    ? `${((100 * unit.gpcs) / run.board.compute).toPrecision(3).replace(/\.?0+$/, "")}%`
    : `${unit.gpcs}g`;
