(() => {
  "use strict";
  const table = document.getElementById("all");
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  // What a reader chose outlives that the page loads itself again; without storage it is lost.
  const chosen = (change = {}) => {
    try {
      const found = { ...JSON.parse(sessionStorage.getItem(location.pathname)), ...change };
      sessionStorage.setItem(location.pathname, JSON.stringify(found));
      return found;
    } catch {
      return {};
    }
  };
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
    chosen({ by: head.textContent, up });
  };
  heads.forEach((head, index) => {
    if (!head.dataset.sort) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(head, index));
    head.append(button);
  });
  const { by, up, words } = chosen();
  heads.forEach((head, index) => {
    if (!head.dataset.sort || head.textContent !== by) return;
    sort(head, index);
    if (!up) sort(head, index);
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
    const filter = () => {
      const wanted = input.value.toLowerCase().split(/\s+/);
      for (const row of body.rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !wanted.every((word) => text.includes(word));
      }
      chosen({ words: input.value });
    };
    input.addEventListener("input", filter);
    input.value = words ?? "";
    filter();
    document.querySelector(".unfold").before(label);
  }
})();
