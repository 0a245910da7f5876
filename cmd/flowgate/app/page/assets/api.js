// What the page asks the gateway. Every path is relative to the page's own.

// Problem is an answer that is none, in the gateway's words.
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

const tokenKey = 'flowgate.token:' + location.pathname;

// token is kept for this tab alone.
export const token = {
  get: () => sessionStorage.getItem(tokenKey) ?? '',
  set: (value) => sessionStorage.setItem(tokenKey, value),
  forget: () => sessionStorage.removeItem(tokenKey),
};

// get looks; looking needs no token.
export const get = (path, query, signal) => send('GET', path + search(query), undefined, { signal });

// guarded asks with the token: changes, and what producers sent.
export const guarded = (method, path, body) => send(method, path, body, { bearer: token.get() });

export function search(query) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== '' && value !== undefined && value !== null) q.set(name, value);
  }
  const text = q.toString();
  return text && '?' + text;
}

async function send(method, path, body, { signal, bearer } = {}) {
  const headers = {};
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (bearer) headers.Authorization = 'Bearer ' + bearer;
  let res;
  try {
    res = await fetch(path, {
      method, headers, signal, cache: 'no-store', credentials: 'same-origin', redirect: 'error',
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (err) {
    if (err.name === 'AbortError') throw err;
    throw new Problem(0, 'the gateway does not answer');
  }
  const text = await res.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    if (res.ok) throw new Problem(res.status, 'the answer is not JSON');
  }
  if (!res.ok) throw new Problem(res.status, value?.detail || `the gateway answered ${res.status} ${res.statusText}`);
  return value;
}
