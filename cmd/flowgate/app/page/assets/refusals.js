// The parts of what is refused: by reason, and by tenant. Each gives the series of the rows,
// with those of before to keep their colors.

import { words } from './format.js';

// known are the reasons of refusals, the frequent ones first.
const known = ['rate_limited', 'tenant_backlog', 'backlog', 'overloaded', 'deadline', 'draining', 'forbidden', 'invalid', 'too_large'];

// reasons makes a series of each reason that was seen, always in the same color.
export function reasons(rows, before) {
  const seen = new Set(before.map((s) => s.key));
  for (const r of rows) for (const key of Object.keys(r.refused_by ?? {})) seen.add(key);
  const rank = (key) => (known.indexOf(key) + 1 || known.length + 1);
  return [...seen].sort((a, b) => rank(a) - rank(b)).map((key) => ({ key, label: words(key), of: (s) => s.refused_by?.[key] ?? 0, color: ((rank(key) - 1) % 8) + 1 }));
}

const namedTenants = 5;

// tenants makes a series of each of those who were refused most over all rows, and one of
// the others. Who stays among them keeps the color.
export function tenants(rows, before) {
  const sums = new Map();
  for (const r of rows) for (const { tenant, refused } of r.refused_most ?? []) sums.set(tenant, (sums.get(tenant) ?? 0) + refused);
  if (sums.size === 0) return [];
  const named = [...sums].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, namedTenants).map(([tenant]) => tenant);
  const colors = new Map(before.filter((s) => named.includes(s.tenant)).map((s) => [s.tenant, s.color]));
  const free = [1, 3, 5, 2, 4].filter((c) => ![...colors.values()].includes(c));
  const of = (s, tenant) => s.refused_most?.find((t) => t.tenant === tenant)?.refused ?? 0;
  return [
    ...named.map((tenant) => ({ key: 'tenant ' + tenant, tenant, label: tenant, of: (s) => of(s, tenant), color: colors.get(tenant) ?? free.shift() })),
    { key: 'others', label: 'others', of: (s) => Math.max(0, (s.refused ?? 0) - named.reduce((sum, tenant) => sum + of(s, tenant), 0)), color: 'muted' },
  ];
}
