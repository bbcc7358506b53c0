// Before the first paint, so that a dark page never flashes light. A file of its own: inline scripts are forbidden.
try {
  const theme = localStorage.getItem("pagurid.theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch {
  // No storage: the system's choice stands.
}
