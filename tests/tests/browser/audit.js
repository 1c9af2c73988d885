// What is wrong with the page as it stands, for eyes, fingers and screen readers; returns sentences.
const wrong = [];
const box = (element) => element.getBoundingClientRect();
const seen = (element) => element.getClientRects().length > 0 && !element.closest(".unseen");

if (document.documentElement.lang !== "en") wrong.push("the language is not told");
if (!document.title) wrong.push("no title");
if (document.querySelectorAll("h1").length !== 1) wrong.push("not one h1");
if (document.querySelectorAll("main").length !== 1) wrong.push("not one main");
if (!document.querySelector("[role=status]")) wrong.push("no live region");
// Not `innerWidth`, which a phone widens with what sticks out.
const { scrollWidth, clientWidth } = document.documentElement;
if (scrollWidth > clientWidth) wrong.push(`scrolls sideways: ${scrollWidth} of ${clientWidth}`);

const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) wrong.push(`#${id} is there twice`);
for (const element of document.querySelectorAll("[aria-describedby]")) {
  for (const id of element.getAttribute("aria-describedby").split(" ")) {
    if (!document.getElementById(id)?.textContent.trim()) wrong.push(`#${element.id} is described by nothing: ${id}`);
  }
}
for (const element of document.querySelectorAll("[aria-invalid]")) {
  if (!element.getAttribute("aria-describedby")?.includes("-error")) wrong.push(`#${element.id} does not say what is wrong`);
}

// Fingers: 44 pixels. A radio button is touched by its label.
for (const element of document.querySelectorAll("a, button, input:not([type=hidden])")) {
  const target = element.type === "radio" ? element.closest("label") : element;
  if (!seen(target)) continue;
  const { width, height } = box(target);
  if (width < 44 || height < 44) wrong.push(`too small to touch: ${element.id || element.textContent} ${width}x${height}`);
  if (element.type === "text" && parseFloat(getComputedStyle(element).fontSize) < 16) wrong.push(`#${element.id} makes a phone zoom`);
}

// Eyes: a contrast of 4.5 for text, of 3 for what frames a field.
const read = (color) => {
  const parts = color.match(/[\d.]+/g).map(Number);
  return { rgb: parts.slice(0, 3), alpha: parts[3] ?? 1 };
};
const ground = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const { rgb, alpha } = read(getComputedStyle(at).backgroundColor);
    if (alpha === 1) return rgb;
    if (alpha !== 0) wrong.push(`a ground that shines through cannot be judged: ${at.className}`);
  }
  return [255, 255, 255];
};
const light = (rgb) => {
  const [r, g, b] = rgb.map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (one, other) => {
  const [less, more] = [light(one), light(other)].sort((a, b) => a - b);
  return (more + 0.05) / (less + 0.05);
};
let judged = 0;
const judge = (what, one, other, least) => {
  judged += 1;
  const found = contrast(one, other);
  if (found < least) wrong.push(`contrast ${found.toFixed(2)}: ${what}`);
};
const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
for (let text = texts.nextNode(); text; text = texts.nextNode()) {
  const element = text.parentElement;
  if (!text.textContent.trim() || !seen(element)) continue;
  judge(text.textContent.trim(), read(getComputedStyle(element).color).rgb, ground(element), 4.5);
}
for (const field of document.querySelectorAll(".field input, .choice")) {
  if (!seen(field)) continue;
  const style = getComputedStyle(field);
  judge(`the text in #${field.id}`, read(style.color).rgb, ground(field), 4.5);
  judge(`the frame of #${field.id}`, read(style.borderTopColor).rgb, ground(field.parentElement), 3);
}
if (judged < 2) wrong.push("no text was looked at");
return wrong;
