// What the page is made with. Texts go in as texts: nothing that anybody sent is markup.

// put changes a text only if it differs: a reader's cursor stays where it is.
export function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// el makes an element: attributes, then children or text.
export function el(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) e.addEventListener(key.slice(2), value);
    else if (value === true) e.setAttribute(key, '');
    else if (value !== false && value !== undefined) e.setAttribute(key, value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}
