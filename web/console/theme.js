// A plain script in the head, before anything is drawn: a chosen theme does not flash the other one first.
(() => {
  try {
    const theme = localStorage.getItem('citetap.theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is switched off: the system's theme it is.
  }
})();
