// The windows as a strip of bars: measured goodput against what the plan promised. One is open;
// arrow keys go from one to the next.

import { goodOf } from "./run.js";
import { count, goodput, make } from "./words.js";

const SHOWN = 120;
const HEIGHT = 31;

export class Strip {
  constructor(onOpen) {
    this.onOpen = onOpen;
    this.until = null;
    this.element = make("div", { class: "strip", role: "listbox", "aria-label": "Windows: goodput measured as a bar, promised as a line", "aria-orientation": "horizontal" });
    this.element.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const numbers = this.run?.numbers ?? [];
    const at = numbers.indexOf(this.open);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: numbers.length - 1 }[event.key];
    if (to === undefined || numbers[to] === undefined) return;
    event.preventDefault();
    this.onOpen(numbers[to], to === numbers.length - 1);
    this.element.querySelector("[aria-selected=true]")?.focus();
  }

  draw(run, open) {
    this.run = run;
    this.open = open;
    const numbers = run.numbers;
    const place = Math.max(numbers.indexOf(open), 0);
    const last = Math.max(SHOWN, Math.min(numbers.length, Math.max(place + 10, numbers.length - (place < numbers.length - SHOWN ? numbers.length : 0))));
    const shown = numbers.slice(Math.max(0, last - SHOWN), last);
    const fates = shown.map((number) => [number, run.whole(number)]);
    const most = Math.max(1, ...fates.map(([number, fate]) => Math.max(fate.received, run.windows.get(number).predicted_goodput ?? 0)));
    while (this.element.children.length > fates.length) this.element.lastChild.remove();
    fates.forEach(([number, fate], at) => this.bar(at, number, fate, most, open));
    if (this.scrolled !== open) {
      this.scrolled = open;
      const chosen = this.element.querySelector("[aria-selected=true]");
      if (chosen) this.element.scrollLeft = chosen.offsetLeft - this.element.clientWidth / 2;
    }
  }

  bar(at, number, fate, most, open) {
    let button = this.element.children[at];
    if (!button) {
      button = make("button", { type: "button", role: "option" }, make("i"), make("b"), make("span"));
      button.addEventListener("click", () => {
        const numbers = this.run.numbers;
        this.onOpen(Number(button.dataset.window), Number(button.dataset.window) === numbers.at(-1));
      });
      this.element.append(button);
    }
    const window = this.run.windows.get(number);
    const good = goodOf(fate);
    const promised = window.predicted_goodput;
    const words = `window ${number}: ${goodput(good, fate.received)}; ${promised === null ? "nothing promised" : `${count(promised)} promised`}${window.ended_s === null ? "; not over" : ""}`;
    const selected = number === open;
    button.dataset.window = number;
    button.setAttribute("aria-selected", selected);
    button.tabIndex = selected ? 0 : -1;
    button.title = words;
    button.setAttribute("aria-label", words);
    button.classList.toggle("open", window.ended_s === null);
    const [bar, mark, label] = button.children;
    bar.style.height = `${Math.round((HEIGHT * good) / most)}px`;
    mark.hidden = promised === null;
    mark.style.bottom = `${13 + Math.round((HEIGHT * (promised ?? 0)) / most)}px`;
    label.textContent = number;
  }
}
