(() => {
  const table = document.getElementById("all");
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, index) => {
    const number = head.dataset.sort === "number";
    const key = (row) => {
      const text = row.cells[index].dataset.order;
      return number ? (text === "" ? NaN : Number(text)) : text;
    };
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      const order = (a, b) => {
        // What is missing goes last either way.
        if (number && (Number.isNaN(a) || Number.isNaN(b))) return Number.isNaN(a) - Number.isNaN(b);
        const found = number ? a - b : a.localeCompare(b, "en", { numeric: true });
        return up ? found : -found;
      };
      body.append(...[...body.rows].sort((a, b) => order(key(a), key(b))));
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
    });
  });
})();
