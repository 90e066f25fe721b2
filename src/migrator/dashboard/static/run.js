// A run as the page knows it: updates are merged in, questions about windows and tenants answered.

const HISTORY_S = 3600;
const MOST = 300;
export const COLUMNS = [
  "second", "span_s", "received", "in_time", "late", "dropped", "failed", "wrong",
  "reconfiguring", "forecast_mean", "forecast_low", "forecast_high",
];

/** One tenant's seconds as columns of numbers, by second. */
export class Seconds {
  constructor() {
    for (const name of COLUMNS) this[name] = [];
  }

  get length() {
    return this.second.length;
  }

  put(columns) {
    const [moments] = columns;
    for (let row = 0; row < moments.length; row += 1) {
      const at = this.find(moments[row]);
      const known = this.second[at] === moments[row];
      COLUMNS.forEach((name, column) => {
        if (known) this[name][at] = columns[column][row];
        else if (at === this.length - (column > 0 ? 1 : 0)) this[name].push(columns[column][row]);
        else this[name].splice(at, 0, columns[column][row]);
      });
    }
    const old = this.find((this.second.at(-1) ?? 0) - HISTORY_S);
    if (old > 120) for (const name of COLUMNS) this[name].splice(0, old);
  }

  /** The first place whose second is not before `second`. */
  find(second) {
    if (!this.length || this.second[this.length - 1] < second) return this.length;
    let [low, high] = [0, this.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.second[middle] < second) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

const NOTHING = () => ({
  received: 0, in_time: 0, late: 0, dropped: 0, failed: 0, wrong: 0, unjudged: 0, reconfiguring: 0, known: true,
});

/** The goodput of requests; null if it is not known which answers are correct. */
export const goodOf = (fate) => (fate.unjudged > 0 ? null : Math.max(0, fate.in_time - fate.wrong));

/** What became of requests, each counted once: those lost to a change are taken from the others. */
export const parts = (fate) => {
  const lost = Math.min(fate.reconfiguring, fate.late + fate.dropped);
  const fromDropped = Math.min(lost, fate.dropped);
  const known = fate.in_time + fate.late + fate.dropped + fate.failed;
  return {
    good: Math.max(0, fate.in_time - fate.wrong - fate.unjudged),
    unjudged: fate.unjudged,
    wrong: fate.wrong,
    late: fate.late - (lost - fromDropped),
    dropped: fate.dropped - fromDropped,
    lost,
    failed: fate.failed,
    open: Math.max(0, fate.received - known),
  };
};
export const PARTS = {
  good: "good", unjudged: "unknown", wrong: "wrong", late: "late", dropped: "dropped",
  lost: "lost to reconfiguration", failed: "failed", open: "not answered yet",
};

export class Run {
  constructor(source, about, palette) {
    this.source = source;
    this.about = about;
    this.palette = palette;
    this.board = about.board_slices;
    this.simulated = about.driver === "simulated";
    this.path = `/dashboard/${source}/${about.run}`;
    this.clear();
  }

  clear() {
    this.windows = new Map();
    this.numbers = []; // of the windows, ascending
    this.zero = 0; // when the first of them began
    this.fates = new Map();
    this.seconds = new Map(this.about.tenants.map((name) => [name, new Seconds()]));
    this.units = new Map();
    this.versions = new Map();
    this.plans = new Map();
    this.planned = new Map();
    this.retrainings = new Map();
    this.notRetrained = new Map(); // sentences, by window and tenant
    this.events = [];
    this.actions = [];
    this.older = new Map();
    this.remembers = false;
    this.ended = null;
    this.heardAt = null;
    this.lastRun = this.about.run;
  }

  get tenants() {
    return [...this.seconds.keys()];
  }

  /** Now, in seconds of the run; a run that has ended stands still. */
  get now() {
    if (this.ended !== null) return this.ended;
    if (this.heardAt === null) return 0;
    return this.heardAt.run + (performance.now() - this.heardAt.page) / 1000;
  }

  tones(tenant) {
    return this.palette[Math.max(0, this.tenants.indexOf(tenant)) % this.palette.length];
  }

  merge(update) {
    this.ended = update.run.ended_s;
    this.lastRun = update.run.last_run ?? this.lastRun;
    if (update.now_s) this.heardAt = { run: update.now_s - this.about.began_s, page: performance.now() };
    for (const each of update.windows ?? []) this.windows.set(each.window, each);
    if (update.windows) {
      this.numbers = [...this.windows.keys()].sort((a, b) => a - b);
      this.zero = this.windows.get(this.numbers[0]).began_s;
    }
    for (const each of update.tenant_windows ?? []) this.fates.set(`${each.window}/${each.tenant}`, each);
    for (const [tenant, columns] of Object.entries(update.seconds ?? {})) {
      if (!this.seconds.has(tenant)) this.seconds.set(tenant, new Seconds());
      this.seconds.get(tenant).put(columns);
    }
    for (const each of update.units ?? []) this.units.set(`${each.unit}/${each.from_s}`, each);
    for (const each of update.versions ?? []) this.versions.set(`${each.tenant}/${each.number}/${each.at_s}`, each);
    for (const each of update.plans ?? []) this.plans.set(`${each.window}/${each.at_s}`, each);
    for (const [window, blocks] of Object.entries(update.planned ?? {})) this.planned.set(Number(window), blocks);
    for (const each of update.retrainings ?? []) {
      this.retrainings.set(each.tenant, each);
      this.notRetrained.set(`${each.window}/${each.tenant}`, each.why);
    }
    this.events = [...this.events, ...(update.events ?? [])].slice(-MOST);
    this.actions = [...this.actions, ...(update.actions ?? [])].slice(-MOST);
    this.forget();
  }

  /** The last hour, read once the page stands: what is known already is newer. */
  remember(update) {
    for (const [tenant, columns] of Object.entries(update.seconds ?? {})) {
      const seconds = new Seconds();
      seconds.put(columns);
      const known = this.seconds.get(tenant);
      if (known) seconds.put(COLUMNS.map((name) => known[name]));
      this.seconds.set(tenant, seconds);
    }
    for (const each of update.units ?? []) {
      const key = `${each.unit}/${each.from_s}`;
      if (!this.units.has(key)) this.units.set(key, each);
    }
    for (const each of update.plans ?? []) {
      const key = `${each.window}/${each.at_s}`;
      if (!this.plans.has(key)) this.plans.set(key, each);
    }
    for (const [window, blocks] of Object.entries(update.planned ?? {})) {
      if (!this.planned.has(Number(window))) this.planned.set(Number(window), blocks);
    }
    this.remembers = true;
    this.forget();
  }

  /** What is older than the history is dropped; a window of then is read again when opened. */
  forget() {
    const since = this.span(this.numbers.at(-1) ?? 0)[0] - HISTORY_S - 2 * this.about.window_s;
    for (const [key, each] of this.units) if (each.to_s !== null && each.to_s < since) this.units.delete(key);
    const plans = [...this.plans.entries()].sort(([, a], [, b]) => a.at_s - b.at_s);
    for (const [key] of plans.slice(0, -MOST)) this.plans.delete(key);
    for (const [key] of this.planned) {
      const window = this.windows.get(key);
      if (window && window.began_s < since) this.planned.delete(key);
    }
  }

  /** Begin and end of a window in seconds of the run. */
  span(number) {
    const window = this.windows.get(number);
    if (!window) return [this.now, this.now + this.about.window_s];
    return [window.began_s, window.ended_s ?? window.began_s + this.about.window_s];
  }

  /** Whether everything of that window is here. */
  has(number) {
    if (this.older.has(number)) return true;
    const last = this.span(this.numbers.at(-1) ?? 0)[0];
    return this.span(number)[0] > last - (this.remembers ? HISTORY_S : 2 * this.about.window_s);
  }

  /** A tenant's seconds around a window: the history's, or those read when it was opened. */
  secondsOf(tenant, number) {
    const older = this.older.get(number);
    return older?.seconds.get(tenant) ?? this.seconds.get(tenant) ?? new Seconds();
  }

  unitsOf(number) {
    const older = this.older.get(number);
    return [...(older ? older.units : this.units.values())];
  }

  plannedOf(number) {
    return this.older.get(number)?.planned ?? this.planned.get(number) ?? [];
  }

  keep(number, update) {
    const read = new Map();
    for (const [tenant, columns] of Object.entries(update.seconds)) {
      const seconds = new Seconds();
      seconds.put(columns);
      read.set(tenant, seconds);
    }
    const planned = update.planned?.[number] ?? [];
    this.older.clear(); // one at a time: an opened window costs no more than that
    this.older.set(number, { seconds: read, units: update.units ?? [], planned });
  }

  /** What became of a tenant's requests in a window, from its row or, before its end, its seconds. */
  fate(tenant, number) {
    const row = this.fates.get(`${number}/${tenant}`);
    if (row) {
      const unjudged = row.wrong === null ? row.in_time : 0;
      return { ...row, wrong: row.wrong ?? 0, unjudged, reconfiguring: row.while_reconfiguring, known: true };
    }
    const [from, to] = this.span(number);
    return this.between(this.secondsOf(tenant, number), from, to);
  }

  between(seconds, from, to) {
    const [first, last] = [from, to].map((at) => seconds.find(at - this.zero - 0.5));
    const sum = NOTHING();
    for (let at = first; at < last; at += 1) {
      for (const name of Object.keys(sum)) {
        if (name !== "known" && name !== "unjudged") sum[name] += seconds[name][at] ?? 0;
      }
      if (seconds.wrong[at] === null) sum.unjudged += seconds.in_time[at] ?? 0;
      if (seconds.in_time[at] === null) sum.known = false;
    }
    return sum;
  }

  /** All tenants together. */
  whole(number) {
    const sum = NOTHING();
    for (const tenant of this.tenants) {
      const fate = this.fate(tenant, number);
      for (const name of Object.keys(sum)) {
        if (name !== "known") sum[name] += fate[name] ?? 0;
      }
      sum.known = sum.known && fate.known;
    }
    return sum;
  }

  /** The last seconds of a tenant, or of all: what comes now, and how much of it is good. */
  lately(tenant = null, last = 10) {
    const sum = NOTHING();
    const until = Math.min(this.now, this.ended ?? Infinity) - 1;
    for (const name of tenant === null ? this.tenants : [tenant]) {
      const part = this.between(this.seconds.get(name), until - last, until);
      for (const key of Object.keys(sum)) if (key !== "known") sum[key] += part[key];
      sum.known = sum.known && part.known;
    }
    return { ...sum, per_s: sum.received / last };
  }

  /** Adopted versions of a tenant by time. */
  adopted(tenant) {
    return [...this.versions.values()]
      .filter((each) => each.tenant === tenant && each.adopted)
      .sort((a, b) => a.at_s - b.at_s);
  }

  /** What the accuracy of a tenant's model rests on, by its last window; null: not known. */
  evidence(tenant) {
    const rows = this.numbers.map((number) => this.fates.get(`${number}/${tenant}`));
    return rows.filter((row) => row).at(-1)?.evidence ?? null;
  }

  /** Moments at which a tenant's accuracy became known, and what it is. */
  accuracies(tenant) {
    const found = this.adopted(tenant)
      .filter((each) => each.accuracy !== null)
      .map((each) => [each.at_s, each.accuracy, each.number]);
    for (const number of this.numbers) {
      const row = this.fates.get(`${number}/${tenant}`);
      if (row && row.accuracy_before !== null) found.push([this.windows.get(number).began_s, row.accuracy_before, null]);
    }
    return found.sort((a, b) => a[0] - b[0]);
  }
}
