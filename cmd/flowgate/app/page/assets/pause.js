// Pause and resume.

import { guarded } from './api.js';
import { ask } from './ask.js';
import { count } from './format.js';

const lengths = [['', 'until somebody resumes'], ['5m', '5 minutes'], ['15m', '15 minutes'], ['1h', '1 hour'], ['4h', '4 hours'], ['at', 'until a time…']];

// setUp gives the button its work; status() is the newest one known.
export function setUp(button, status) {
  button.addEventListener('click', () => (status()?.paused ? resume(status()) : pause(status())));
  return () => {
    const s = status();
    button.disabled = !s || s.replica?.leader === false;
    const text = s?.paused ? 'Resume deliveries…' : 'Pause deliveries…';
    if (button.textContent !== text) button.textContent = text;
  };
}

function pause(s) {
  ask({
    title: 'Pause deliveries',
    text: `No delivery to the consumer starts until it ends. Producers are still admitted until the backlog is at HIGH, ${count(s.watermarks.high)} messages.`,
    fields: [
      { name: 'for', label: 'How long', options: lengths },
      { name: 'until', label: 'Until', type: 'datetime-local', shown: false, hint: 'By this browser’s time of day.' },
    ],
    confirm: 'Pause',
    run: async ({ for: length, until, reason, author }) => {
      const body = { reason, author };
      if (length === 'at') body.until = until ? new Date(until).toISOString() : '-';
      else if (length) body.for = length;
      await guarded('POST', 'api/v1/pause', body);
      return 'Deliveries are paused.';
    },
  });
  const select = document.getElementById('field-for');
  select.addEventListener('change', () => {
    document.getElementById('field-until').parentElement.hidden = select.value !== 'at';
  });
}

function resume(s) {
  ask({
    title: 'Resume deliveries', text: `${count(s.depth.total)} messages wait. They leave at the shaper’s rate.`, confirm: 'Resume',
    run: async ({ reason, author }) => {
      await guarded('POST', 'api/v1/resume', { reason, author });
      return 'Deliveries are resumed.';
    },
  });
}
