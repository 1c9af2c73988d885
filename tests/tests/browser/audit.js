// Audits the current page for layout, contrast, touch targets and accessibility. Returns a list of defects as text.
const defects = [];
const box = (element) => element.getBoundingClientRect();
const isVisible = (element) => element.getClientRects().length > 0 && !element.closest(".unseen");

if (document.documentElement.lang !== "en") defects.push("the language is missing");
if (!document.title) defects.push("no title");
for (const name of ["h1", "main"]) {
  const count = document.querySelectorAll(name).length;
  if (count !== 1) defects.push(`${count} ${name} elements, expected 1`);
}
if (!document.querySelector("[role=status]")) defects.push("no live region");
// `innerWidth` would not do: on a phone it includes overflowing content.
const { scrollWidth, clientWidth } = document.documentElement;
if (scrollWidth > clientWidth) defects.push(`scrolls sideways: ${scrollWidth} of ${clientWidth}`);

const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) defects.push(`#${id} is not unique`);
for (const element of document.querySelectorAll("[aria-describedby]")) {
  for (const id of element.getAttribute("aria-describedby").split(" ")) {
    if (!document.getElementById(id)?.textContent.trim()) defects.push(`#${element.id} has an empty description: ${id}`);
  }
}
for (const element of document.querySelectorAll("[aria-invalid]")) {
  if (!element.getAttribute("aria-describedby")?.includes("-error")) defects.push(`#${element.id} has no error message`);
}

// Touch targets have at least 44 pixels. The target of a radio button is its label.
for (const element of document.querySelectorAll("a, button, input:not([type=hidden])")) {
  const target = element.type === "radio" ? element.closest("label") : element;
  if (!isVisible(target)) continue;
  const { width, height } = box(target);
  if (width < 44 || height < 44) defects.push(`too small to touch: ${element.id || element.textContent} ${width}x${height}`);
  if (element.type === "text" && parseFloat(getComputedStyle(element).fontSize) < 16) defects.push(`#${element.id} has text below 16 pixels, so a phone zooms in`);
}

// Contrast is at least 4.5 for text and 3 for the borders of fields (WCAG 2.1).
const parseColor = (color) => {
  const parts = color.match(/[\d.]+/g).map(Number);
  return { rgb: parts.slice(0, 3), alpha: parts[3] ?? 1 };
};
const background = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const { rgb, alpha } = parseColor(getComputedStyle(at).backgroundColor);
    if (alpha === 1) return rgb;
    if (alpha !== 0) defects.push(`a translucent background is not supported: ${at.className}`);
  }
  return [255, 255, 255];
};
const luminance = (rgb) => {
  const [r, g, b] = rgb.map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (first, second) => {
  const [darker, lighter] = [luminance(first), luminance(second)].sort((a, b) => a - b);
  return (lighter + 0.05) / (darker + 0.05);
};
let checked = 0;
const checkContrast = (what, first, second, minimum) => {
  checked += 1;
  const found = contrast(first, second);
  if (found < minimum) defects.push(`contrast ${found.toFixed(2)}: ${what}`);
};
const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
for (let text = texts.nextNode(); text; text = texts.nextNode()) {
  const element = text.parentElement;
  if (!text.textContent.trim() || !isVisible(element)) continue;
  checkContrast(text.textContent.trim(), parseColor(getComputedStyle(element).color).rgb, background(element), 4.5);
}
for (const field of document.querySelectorAll(".field input, .choice")) {
  if (!isVisible(field)) continue;
  const style = getComputedStyle(field);
  checkContrast(`the text in #${field.id}`, parseColor(style.color).rgb, background(field), 4.5);
  checkContrast(`the border of #${field.id}`, parseColor(style.borderTopColor).rgb, background(field.parentElement), 3);
}
if (checked < 2) defects.push("no text was checked");
return defects;
