// Every change goes through one dialog: what will happen, why, and a button that says it.

import { Problem, guarded, token } from './api.js';
import { el } from './dom.js';

const dialog = document.getElementById('change');
const told = document.getElementById('told');
const authorKey = 'flowgate.author:' + location.pathname;
let fading = 0;

// tell says that something is done.
export function tell(text) {
  told.textContent = text;
  told.classList.add('shown');
  clearTimeout(fading);
  fading = setTimeout(() => told.classList.remove('shown'), 6000);
}

// ask opens the dialog. fields are {name, label, type, value, hint, required, options,
// fixed}; a reason and a name are asked for unless reason is false. run gets the values and
// a function to report progress with; what it returns is told, what it throws is shown.
export function ask({ title, text, fields = [], reason = true, confirm, danger, run }) {
  const all = [...fields];
  if (reason) {
    all.push({ name: 'reason', label: 'Reason', hint: 'Stands in the log, and in lists.' });
    all.push({ name: 'author', label: 'Your name', value: sessionStorage.getItem(authorKey) ?? '', hint: 'May be left out.' });
  }
  const secret = field({ name: 'token', label: 'Admin token', type: 'password', hint: 'FLOWGATE_ADMIN_TOKEN of this gateway; kept for this tab alone.' });
  secret.hidden = true;
  const error = el('p', { class: 'error', role: 'alert' });
  error.hidden = true;
  const progress = el('p', { class: 'progress', role: 'status' });
  const go = el('button', { type: 'submit', class: danger ? 'main danger' : 'main' }, confirm);
  const cancel = el('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel');
  const form = el('form', { method: 'dialog' },
    el('h2', { id: 'change-title' }, title), text ? el('p', {}, text) : null,
    ...all.map(field), secret, error, progress, el('div', { class: 'buttons' }, cancel, go));
  form.addEventListener('submit', async (e) => {
    e.preventDefault();
    const values = Object.fromEntries([...new FormData(form)].map(([k, v]) => [k, v.trim()]));
    if (!secret.hidden && values.token) token.set(values.token);
    if (reason) sessionStorage.setItem(authorKey, values.author);
    go.disabled = true;
    error.hidden = true;
    const mine = () => dialog.open && dialog.contains(form);
    try {
      const done = await run(values, (line) => (progress.textContent = line), mine);
      if (mine()) dialog.close();
      if (done) tell(done);
    } catch (err) {
      if (!(err instanceof Problem)) throw err;
      error.hidden = false;
      error.textContent = err.status === 401 ? (secret.hidden || !values.token ? 'This gateway asks for its admin token.' : 'This is not the gateway’s admin token.') : sentence(err.message);
      if (err.status === 401) {
        token.forget();
        secret.hidden = false;
        secret.querySelector('input').focus();
      }
    } finally {
      go.disabled = false;
      progress.textContent = '';
    }
  });
  dialog.replaceChildren(form);
  if (!dialog.open) dialog.showModal();
  const first = form.querySelector('input:not([readonly]), select');
  (first ?? go).focus();
}

// unlocked asks for what needs the token though it changes nothing.
export async function unlocked(path, use) {
  try {
    use(await guarded('GET', path));
  } catch (err) {
    if (!(err instanceof Problem)) throw err;
    ask({
      title: 'What producers sent is guarded', text: err.status === 401 ? 'Enter the admin token to look.' : sentence(err.message),
      reason: false, confirm: 'Look', run: async () => use(await guarded('GET', path)),
    });
    if (err.status === 401) dialog.querySelector('form').requestSubmit();
  }
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? '' : '.');

function field({ name, label, type = 'text', value = '', hint, required, options, fixed, shown = true }) {
  const id = 'field-' + name;
  const input = options
    ? el('select', { id, name }, ...options.map(([v, t]) => el('option', { value: v, selected: v === value }, t)))
    : el('input', { id, name, type, required, readonly: fixed, autocomplete: 'off', spellcheck: 'false', 'aria-describedby': hint && id + '-hint' });
  if (!options) input.value = value;
  const p = el('p', { class: 'field' }, el('label', { for: id }, label), input, hint ? el('small', { id: id + '-hint' }, hint) : null);
  p.hidden = !shown;
  return p;
}
