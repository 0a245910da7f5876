// The first row: in one word what the state is, and what it means.

import { put } from './dom.js';
import { count, rate, seconds, time, words, none } from './format.js';

const $ = (id) => document.getElementById(id);

// ends is when a signal is over.
const ends = {
  depth: 'the depth is at LOW', bytes: 'the backlog’s bytes are at their low mark', age: 'the oldest message is young enough',
  outage: 'the consumer takes work again', storage: 'the disk has room',
};

// refusedUntil says who is refused under the signals, and until when.
function refusedUntil(signals) {
  const until = signals.map((s) => ends[s]).filter(Boolean).join(' and ') || 'it is over';
  if (signals.includes('storage')) return `All are refused until ${until}.`;
  return `Producers are refused until ${until}, but for those below their part or with a place.`;
}

const staleAfter = 10; // seconds, for a gateway that does not say so itself

// verdicts lists what is the matter, the worst first. now is in milliseconds, link what
// became of the connection.
export function verdicts(s, link, now) {
  if (link === 'lost' || !s) {
    return [{ state: 'lost', word: 'Connection to the gateway lost', detail: s ? `What is shown was so at ${time(now)}. Trying again.` : 'Nothing is known. Trying again.' }];
  }
  if (s.replica?.lost) {
    return [{ state: 'stale', word: 'NATS does not answer', detail: s.replica.active ? `This gateway stands by and cannot tell whether ${s.replica.active} still works.`
      : `The lease of this gateway ran out: nothing is admitted or delivered. What is shown was so at ${time(s.sampled_at)}.` }];
  }
  if (s.replica?.leader === false) {
    return [{ state: 'standby', word: 'Standing by', detail: s.replica.active ? `Active is ${s.replica.active}. This gateway takes over when it ends.` : 'Waiting for the lease of this name.' }];
  }
  const list = [];
  const age = (now - Date.parse(s.sampled_at)) / 1000;
  if (s.stale ?? age > staleAfter) {
    list.push({ state: 'stale', word: 'Stale sample', detail: `The stream was last read at ${time(s.sampled_at)}. Depth and age are of then.` });
  }
  if (s.breaker === 'open' || s.breaker === 'half_open') {
    list.push({
      state: 'breaker', word: s.breaker === 'open' ? 'Breaker open' : 'Breaker half open',
      detail: 'The consumer fails. Deliveries are held back, and one at a time is tried.',
    });
  }
  if (s.paused) {
    const p = s.pause ?? {};
    const until = Date.parse(p.until) > 0 ? 'until ' + time(p.until) : 'until resumed';
    list.push({
      state: 'paused', word: `Paused ${until}` + (p.author ? ` by ${p.author}` : ''),
      detail: `No delivery starts since ${time(p.since)}; messages wait.` + (p.reason ? ` Reason: ${p.reason}` : ''),
    });
  }
  if (s.level === 'pressured') {
    const signals = (s.signals ?? []).map(words).join(' and ');
    const hint = s.hint_seconds > 0 ? ` A first try is told to wait ${seconds(s.hint_seconds)}.` : '';
    const places = s.slots > 0 ? ` ${count(s.slots)} places are promised.` : '';
    list.push({
      state: 'pressured', word: 'Pressured' + (s.pressured_since ? ` since ${time(s.pressured_since)}` : '') + (signals ? ` by ${signals}` : ''),
      detail: (s.mode === 'enforce' ? refusedUntil(s.signals ?? []) : `Mode ${s.mode}: producers would be refused, and are not.`) + hint + places,
    });
  }
  if (list.length === 0) {
    list.push({ state: 'normal', word: 'Normal', detail: s.hint_seconds > 0
      ? `Producers stand in line: a first try is told to wait ${seconds(s.hint_seconds)}.` : 'Producers are admitted within their limits.' });
  }
  return list;
}

// show fills the first row.
export function show(s, link, now) {
  const [first, ...others] = verdicts(s, link, now);
  $('verdict').dataset.state = first.state;
  put($('word'), first.word);
  put($('detail'), first.detail);
  $('also').hidden = others.length === 0;
  put($('also'), others.length ? 'Also: ' + others.map((v) => v.word).join('; ') : '');
  document.title = (s?.name ? s.name + ' · ' : '') + first.word;
  document.body.classList.toggle('lost', first.state === 'lost');
  if (!s || first.state === 'standby' || s.replica?.active) return first;
  depth(s);
  put($('oldest'), s.depth.total > 0 || s.oldest_age_seconds > 0 ? seconds(s.oldest_age_seconds) : none);
  put($('oldest-note'), s.depth.total === 0 ? 'backlog empty' : 'since admission');
  outlook(s);
  put($('admitted'), rate(s.rate.admitted));
  put($('refused'), rate(s.rate.refused));
  put($('delivered'), rate(s.rate.delivered));
  return first;
}

function depth(s) {
  const { low, high, max } = s.watermarks;
  const d = s.depth;
  put($('depth'), count(d.total));
  put($('depth-of'), `of ${count(high)} messages at HIGH` + (high ? `, ${Math.round((100 * d.total) / high)} %` : ''));
  put($('depth-note'), `${count(d.waiting)} waiting · ${count(d.in_flight)} in flight · ${count(d.delayed)} delayed`);
  const share = (n) => (max ? Math.min(100, (100 * n) / max) : 0);
  const place = (id, from, to) => {
    const { style } = $(id);
    style.left = share(from) + '%';
    style.width = Math.max(0, share(to) - share(from)) + '%';
  };
  place('zone-warn', low, high);
  place('zone-bad', high, max);
  place('fill-waiting', 0, d.waiting);
  place('fill-in-flight', d.waiting, d.waiting + d.in_flight);
  place('fill-delayed', d.waiting + d.in_flight, d.total);
  for (const [name, n] of Object.entries({ low, high, max })) {
    const mark = $('mark-' + name);
    put(mark, `${name.toUpperCase()} ${count(n)}`);
    mark.style.left = share(n) + '%';
  }
  const meter = $('meter');
  meter.setAttribute('aria-valuemax', max);
  meter.setAttribute('aria-valuenow', d.total);
  meter.setAttribute('aria-valuetext',
    `${count(d.total)} messages: ${count(d.waiting)} waiting, ${count(d.in_flight)} in flight, ${count(d.delayed)} delayed. LOW ${count(low)}, HIGH ${count(high)}, MAX ${count(max)}`);
}

function outlook(s) {
  const known = (v) => v !== null && v !== undefined;
  let title = 'Time to drain', value = 'Not draining', note = 'at the present rates';
  if (s.depth.total === 0) [value, note] = ['Empty', 'nothing waits'];
  else if (known(s.time_to_high_seconds) && s.level !== 'pressured') [title, value] = ['Time to HIGH', seconds(s.time_to_high_seconds)];
  else if (known(s.drain_seconds)) value = seconds(s.drain_seconds);
  else if (s.paused) note = 'paused';
  else if (s.breaker !== 'closed') note = 'the consumer fails';
  put($('outlook-title'), title);
  put($('outlook'), value);
  put($('outlook-note'), note);
}
