// Sets the theme before the first paint. A classic script in the head, so that the other theme does not flash.
(() => {
  try {
    const theme = localStorage.getItem('citetap.theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is disabled: use the system's theme.
  }
})();
