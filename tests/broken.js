// The elements that a page displays wrongly, as a list of phrases. The contrast between a text and its background must
// be at least 4.5, as the accessibility guidelines require (WCAG, level AA).
(() => {
  const CONTRAST_MIN = 4.5;
  const channels = (colour) => (colour.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((c) => ((c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const over = (top, below) => {
    const alpha = top.length > 3 ? top[3] : 1;
    return [0, 1, 2].map((channel) => top[channel] * alpha + below[channel] * (1 - alpha));
  };
  const isDark = () =>
    matchMedia("(prefers-color-scheme: dark)").matches &&
    getComputedStyle(document.documentElement).colorScheme.includes("dark");
  const canvas = () => (isDark() ? [18, 18, 18] : [255, 255, 255]);
  const behind = (element) => {
    if (!element) return canvas();
    const own = channels(getComputedStyle(element).backgroundColor);
    return own.length > 3 && own[3] === 0 ? behind(element.parentElement) : over(own, behind(element.parentElement));
  };
  const contrast = (element) => {
    const style = getComputedStyle(element);
    const below = behind(element);
    const ink = over(channels(element instanceof SVGElement ? style.fill : style.color), below);
    const [light, dark] = [luminance(ink), luminance(below)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };
  const isShown = (element) =>
    element.getBoundingClientRect().width > 0 &&
    getComputedStyle(element).visibility !== "hidden" &&
    !element.closest("style, script, title");

  const found = [];
  for (const image of document.images) {
    if (image.complete && !image.naturalWidth) found.push(`picture ${image.src}`);
  }
  // A page may contain a drawing twice, for wide windows and for phones: exactly one of the two must be shown.
  const drawings = new Map();
  for (const drawing of document.querySelectorAll("svg[role=img]")) {
    const name = drawing.getAttribute("aria-label");
    drawings.set(name, (drawings.get(name) || 0) + (drawing.getBoundingClientRect().width > 0 ? 1 : 0));
  }
  for (const [name, shown] of drawings) {
    if (shown !== 1) found.push(`drawing ${name}: shown ${shown} times`);
  }
  for (const link of document.querySelectorAll("link[rel=stylesheet]")) {
    if (!link.sheet) found.push(`style sheet ${link.href}`);
  }
  const width = document.documentElement.scrollWidth;
  if (width > window.innerWidth) found.push(`${width} pixels in a window of ${window.innerWidth}`);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode.textContent.trim();
    const element = texts.currentNode.parentElement;
    if (text && isShown(element) && contrast(element) < CONTRAST_MIN) {
      found.push(`${text.slice(0, 60)}: contrast ${contrast(element).toFixed(2)}`);
    }
  }
  return found;
})();
