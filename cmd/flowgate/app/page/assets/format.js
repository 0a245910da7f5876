// Numbers as the page shows them, with their units.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat('en', { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const day = new Intl.DateTimeFormat('en-CA', { year: 'numeric', month: '2-digit', day: '2-digit' });

export const none = '–';
const known = (v) => v !== null && v !== undefined && Number.isFinite(Number(v));

// count is a number of messages.
export function count(v) {
  if (!known(v)) return none;
  return whole.format(v);
}

// short is a count for an axis.
export function short(v) {
  const a = Math.abs(v);
  if (a >= 1e6) return trim(v / 1e6) + ' M';
  if (a >= 1e4) return trim(v / 1e3) + ' k';
  return a < 10 ? trim(v) : whole.format(v);
}

const trim = (v) => String(Math.round(v * 100) / 100);

// rate is a second's.
export function rate(v) {
  if (!known(v)) return none;
  return (v > 0 && v < 9.95 ? tenth : whole).format(v) + '/s';
}

// seconds is a duration.
export function seconds(s) {
  if (!known(s)) return none;
  if (s <= 0) return '0 s';
  if (s < 1) {
    const ms = s * 1000;
    if (ms < 1) return Math.max(1, Math.round(ms * 1000)) + ' µs';
    return (ms < 10 ? trim(Math.round(ms * 10) / 10) : Math.round(ms)) + ' ms';
  }
  if (s < 10) return tenth.format(s) + ' s';
  const n = Math.round(s);
  if (n < 60) return n + ' s';
  if (n < 3600) return Math.floor(n / 60) + ' min ' + two(n % 60) + ' s';
  if (n < 86400) return Math.floor(n / 3600) + ' h ' + two(Math.floor((n % 3600) / 60)) + ' min';
  return Math.floor(n / 86400) + ' d ' + Math.floor((n % 86400) / 3600) + ' h';
}

const two = (n) => String(n).padStart(2, '0');

// bytes is a size.
export function bytes(n) {
  if (!known(n)) return none;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return (i === 0 ? whole.format(n) : tenth.format(n)) + ' ' + units[i];
}

// time is an instant of today, else with its day.
export function time(at, now = Date.now()) {
  if (!at) return none;
  const d = new Date(at);
  if (Number.isNaN(d.getTime()) || d.getFullYear() < 1971) return none;
  return day.format(d) === day.format(now) ? clock.format(d) : day.format(d) + ' ' + clock.format(d);
}

// reason is a name of the interface in words.
export const words = (name) => (name ? String(name).replaceAll('_', ' ') : none);
