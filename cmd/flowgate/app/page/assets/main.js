import { Charts } from './charts.js';
import { DeadLetters } from './deadletters.js';
import { put } from './dom.js';
import { count, seconds, time, words } from './format.js';
import { Limits } from './limits.js';
import { Live } from './live.js';
import { setUp as setUpPause } from './pause.js';
import { Store } from './store.js';
import { Table } from './table.js';
import { Tenants } from './tenants.js';
import { show } from './verdict.js';

const $ = (id) => document.getElementById(id);

const store = new Store();
const charts = new Charts($('chart-grid'), store);
const tenants = new Tenants($('tenant-table'), $('tenant-search'));
const limits = new Limits($('limit-table'), $('limit-search'), $('limit-set'));
const dead = new DeadLetters($('dead-table'), { tenant: $('dead-tenant'), replay: $('replay-all'), purge: $('purge-all') });
const transitions = new Table($('transition-table'), {
  caption: 'Transitions of the last 15 minutes, newest first', key: (t) => t.at + t.to,
  columns: [
    { title: 'At', text: (t) => time(t.at) },
    { title: 'Became', text: (t) => (t.to === 'pressured' ? '▲ pressured' : '▽ normal') },
    { title: 'Signal', text: (t) => words(t.signal) },
    { title: 'Value', number: true, text: (t) => signalValue(t.signal, t.value) },
    { title: 'Bound', number: true, text: (t) => signalValue(t.signal, t.bound) },
  ],
  empty: 'None in the last 15 minutes.',
});

// signalValue has the unit of its signal.
function signalValue(signal, v) {
  return /age|outage|time|latency/.test(signal ?? '') ? seconds(v) : count(v);
}

let status = null;
let link = 'wait';
let at = 0; // when the status came

const pauseButton = setUpPause($('pause'), () => status);

// sampleAge is by the gateway's clock alone, in whole seconds.
function sampleAge() {
  return Math.max(0, Math.round((store.samples.at(-1).at - Date.parse(status.sampled_at)) / 1000));
}

function render() {
  if (link === 'wait') return;
  const state = show(status, link, link === 'lost' ? at : Date.now()).state;
  pauseButton();
  if (!status) return;
  put($('name'), status.name);
  put($('facts'), [status.version, 'mode ' + status.mode, status.replica?.id && 'replica ' + status.replica.id,
    state !== 'standby' && store.samples.length > 0 && 'sample ' + seconds(sampleAge()) + ' old',
    state !== 'standby' && count(status.dead_letters) + (status.dead_letters === 1 ? ' dead letter' : ' dead letters')].filter(Boolean).join(' · '));
}

const live = new Live({
  link(state) {
    const back = state === 'live' && link !== 'live';
    link = state;
    if (state === 'lost') render();
    if (back) refresh(true);
  },
  status(s) {
    const changed = status && s.dead_letters !== status.dead_letters;
    status = s;
    at = Date.now();
    render();
    if (changed && inView.has('dead-letters')) dead.load();
  },
  samples(list, history) {
    if (history) store.history(history);
    else store.add(list);
    charts.draw();
    const all = store.transitions().reverse();
    transitions.show(all.slice(0, 50), { where: all.length > 50 ? `the newest 50 of ${count(all.length)}` : '' });
  },
});

// Tables are asked for while they are in view.
const inView = new Set();
const tables = { tenants: [tenants, 2], limits: [limits, 10], 'dead-letters': [dead, 15] };
let beat = 0;

function refresh(now) {
  if (document.hidden || link !== 'live') return;
  for (const [id, [table, every]] of Object.entries(tables)) if (inView.has(id) && (now === true || beat % every === 0)) table.load();
}

const sight = new IntersectionObserver((entries) => {
  for (const e of entries) {
    if (!e.isIntersecting) inView.delete(e.target.id);
    else if (!inView.has(e.target.id)) {
      inView.add(e.target.id);
      if (link === 'live') tables[e.target.id][0].load();
    }
  }
}, { rootMargin: '200px' });
for (const id of Object.keys(tables)) sight.observe($(id));

let ticking = 0;
function tick() {
  clearInterval(ticking);
  if (document.hidden) return;
  ticking = setInterval(() => {
    beat++;
    refresh();
  }, 1000);
}
document.addEventListener('visibilitychange', tick);
tick();
live.start();
