"use strict";
// Draws every figure of the page and keeps their colours those of the page.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  function colours(layout) {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    const patch = {
      "font.color": of("--text"),
      "hoverlabel.bgcolor": of("--card"),
      "hoverlabel.bordercolor": of("--line"),
      "hoverlabel.font.color": of("--text"),
      "hoverlabel.align": "left",
      "legend.bgcolor": "rgba(0,0,0,0)",
    };
    for (const axis of Object.keys(layout).filter((name) => /^[xy]axis/.test(name))) {
      patch[axis + ".gridcolor"] = of("--line");
      patch[axis + ".linecolor"] = of("--line");
      patch[axis + ".zerolinecolor"] = of("--line");
    }
    return patch;
  }

  async function draw() {
    for (const [id, figure] of Object.entries(figures)) {
      const place = document.getElementById(id);
      await Plotly.newPlot(place, figure.data, figure.layout, {
        displaylogo: false,
        responsive: true,
        modeBarButtons: [["toImage", "resetScale2d"]], // more would lie over the legend; dragging zooms
      });
      await Plotly.relayout(place, colours(figure.layout));
    }
    document.body.dataset.drawn = String(Object.keys(figures).length);
  }

  dark.addEventListener("change", () => {
    for (const [id, figure] of Object.entries(figures)) Plotly.relayout(id, colours(figure.layout));
  });
  draw();
})();
