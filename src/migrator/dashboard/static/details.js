// A window's charts at full size, to zoom and point at: drawn by plotly.js, which is loaded only
// when somebody asks for it.

import { make } from "./words.js";
import { get } from "./stream.js";

let loading = null;

const library = (about) => {
  loading ??= new Promise((resolve, reject) => {
    const script = make("script", { src: `/dashboard/plotly/${about.plotly}` });
    script.onload = () => resolve(globalThis.Plotly);
    script.onerror = () => {
      loading = null;
      reject(new Error("plotly.js could not be loaded; load the page again"));
    };
    document.head.append(script);
  });
  return loading;
};

const key = ({ name, tones: [first, second], hatched, dashed }) => {
  const stripes = `repeating-linear-gradient(135deg,${second} 0 3px,${first} 3px 5px)`;
  const style = dashed ? `border-color:${first}` : `background:${hatched ? stripes : first};border-color:${first}`;
  return make("li", {}, make("span", { class: dashed ? "swatch dashed" : "swatch", style }), make("span", { text: name }));
};

const figure = (chart) => {
  const plot = make("div", { class: "plot", role: "img", "aria-label": chart.summary, style: `height:${chart.height}px` });
  return [plot, make("figure", {},
    make("h3", { text: chart.title }),
    chart.legend.length ? make("ul", { class: "legend" }, ...chart.legend.map(key)) : null,
    chart.scale ? make("div", { class: "scale", text: chart.scale }) : null,
    plot)];
};

export const openDetails = async (about, run, number) => {
  const dialog = document.getElementById("details");
  const place = document.getElementById("details-charts");
  document.getElementById("details-title").textContent = `Window ${number} of ${run.about.scenario} under ${run.about.policy}`;
  place.replaceChildren(make("p", { class: "none", text: "loading …" }));
  if (!dialog.open) dialog.showModal();
  if (!about.plotly) {
    const words = "The charts of a window need plotly, which is not installed where this page is served: ";
    place.replaceChildren(make("p", {}, words, make("code", { text: about.without })));
    return;
  }
  try {
    const [plotly, answer] = await Promise.all([library(about), get(`${run.path}/windows/${number}/figures`)]);
    const made = answer.charts.map(figure);
    place.replaceChildren(...made.map(([, element]) => element));
    const touch = !matchMedia("(pointer: fine)").matches;
    made.forEach(([plot], at) => {
      const { data, layout } = answer.charts[at].figure;
      plotly.newPlot(plot, data, { ...layout, dragmode: touch ? false : "zoom" },
        { responsive: true, displaylogo: false, displayModeBar: touch ? false : "hover", modeBarButtons: [["toImage", "resetScale2d"]] });
    });
    dialog.onclose = () => {
      for (const [plot] of made) plotly.purge(plot);
      place.replaceChildren();
    };
  } catch (error) {
    place.replaceChildren(make("p", { class: "fault", text: error.message }));
  }
};
