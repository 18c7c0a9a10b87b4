// Names and focus that the theme does not set: the search dialog, and code and tables that scroll.
function setFocus() {
  for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
}

document$.subscribe(() => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  setFocus();
});
addEventListener("resize", setFocus);
