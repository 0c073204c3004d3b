(() => {
  "use strict";
  const table = document.getElementById("all");
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const key = (row, index, number) => {
    const text = row.cells[index].dataset.order ?? "";
    return number ? (text === "" ? NaN : Number(text)) : text;
  };
  const sort = (head, index) => {
    const number = head.dataset.sort === "number";
    const up = head.getAttribute("aria-sort") !== "ascending";
    const rows = [...body.rows].map((row) => [key(row, index, number), row]);
    rows.sort(([a], [b]) => {
      // What is missing goes last either way.
      if (number && (Number.isNaN(a) || Number.isNaN(b))) return Number.isNaN(a) - Number.isNaN(b);
      const order = number ? a - b : a.localeCompare(b, "en", { numeric: true });
      return up ? order : -order;
    });
    body.append(...rows.map(([, row]) => row));
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
  };
  heads.forEach((head, index) => {
    if (!head.dataset.sort) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(head, index));
    head.append(button);
  });
  const wide = new ResizeObserver((found) =>
    found.forEach(({ target: box }) =>
      box.classList.toggle("beyond", box.scrollWidth > box.clientWidth + 1),
    ),
  );
  document.querySelectorAll(".scroll").forEach((box) => wide.observe(box));
  if (body.rows.length > 12) {
    const label = document.createElement("label");
    label.className = "filter";
    const input = document.createElement("input");
    input.type = "search";
    label.append("Show rows with ", input);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/);
      for (const row of body.rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    });
    table.parentElement.before(label);
  }
})();
