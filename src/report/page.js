'use strict';
// Hides arms, draws charts again without them, reads values out, saves drawings, sorts tables.
// Charts and tables are complete without it. Ranges and labels of axes: as axis.c chooses them.
const all = (query, from = document) => [...from.querySelectorAll(query)];
const node = (name, attributes = {}, text = null) => {
  const made = document.createElementNS(document.querySelector('svg').namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
};
const element = (name, className, text = '') => {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
};

// ---- axes ----

const range = (a, b, step = 1) => {
  const list = [];
  for (let i = a; i <= b && list.length < 16; i += step) list.push(i);
  return list;
};
const place = (a, v) => {
  const share = a.log ? Math.log(v / a.low) / Math.log(a.high / a.low)
                      : (v - a.low) / (a.high - a.low);
  return a.from + share * (a.to - a.from);
};
const evenTicks = a => {
  const rough = (a.high - a.low) / 6, power = 10 ** Math.floor(Math.log10(rough));
  const times = rough / power, step = power * (times > 5 ? 10 : times > 2 ? 5 : times > 1 ? 2 : 1);
  return range(Math.ceil(a.low / step), a.high / step).map(i => i * step || 0);
};
const logTicks = a => {
  for (const ladder of [[1, 2, 5], [1, 3], [1]]) {
    const decades = Math.floor(Math.log10(a.high / a.low)), found = [];
    const jump = ladder.length > 1 ? 1 : Math.floor(decades / 8) + 1;
    for (let e = Math.floor(Math.log10(a.low)); 10 ** e <= a.high; e += jump)
      found.push(...ladder.map(k => k * 10 ** e).filter(v => v >= a.low && v <= a.high));
    if (found.length >= 3 && found.length <= 8) return found;
    if (found.length < 3) return a.high / a.low < 20 ? evenTicks(a) : found;
  }
  return [];
};
const lengthTicks = a => {
  const first = Math.ceil(Math.log2(a.low) - 1e-9), last = Math.floor(Math.log2(a.high) + 1e-9);
  return range(first, last, Math.floor((last - first) / 8) + 1).map(e => 2 ** e);
};
const finishValues = a => {
  const room = a.log ? Math.max((a.high / a.low) ** 0.06, 1.02)
                     : Math.max(0.06 * (a.high - a.low), 1e-3 * Math.max(Math.abs(a.high), 1e-9));
  a.low = a.log ? a.low / room : a.low - room;
  a.high = a.log ? a.high * room : a.high + room;
  a.ticks = a.log ? logTicks(a) : evenTicks(a);
};
const finishLengths = a => {
  if (a.log) {
    a.ticks = lengthTicks(a);
    const room = a.low === a.high ? 2 : (a.high / a.low) ** 0.03;
    a.low /= room;
    a.high *= room;
  } else {
    if (a.low === a.high) a.high = a.low + 1;
    a.ticks = evenTicks(a);
  }
};
const widen = (a, values) => {
  for (const v of values)
    if (!Number.isNaN(v) && (!a.log || v > 1e-30)) {
      a.low = Math.min(a.low, v);
      a.high = Math.max(a.high, v);
    }
};
const digits = (v, n) => String(+v.toPrecision(n));
const short = v => {
  const size = Math.abs(v);
  if (size >= 1e5 || (size > 0 && size < 1e-4)) return v.toExponential(1);
  if (size >= 100) return v.toFixed(0);
  if (size >= 1 || size === 0) return v.toFixed(size >= 10 ? 1 : 2);
  return digits(v, 3);
};

// ---- charts ----

const numbers = text => (text ?? '').split(' ').filter(w => w !== '').map(Number);
const hidden = new Set();
const charts = all('svg.chart[data-kind]').map(svg => ({
  svg, kind: svg.dataset.kind, share: svg.dataset.share, box: numbers(svg.dataset.box),
  log: (svg.dataset.scales ?? '').split(' ').map(s => s === 'log'),
  shown: numbers(svg.dataset.shown), most: svg.dataset.most !== undefined, axes: svg.querySelector('.axes'),
  series: all('g.series', svg).map(g => ({
    g, arm: g.dataset.arm, x: numbers(g.dataset.x), y: numbers(g.dataset.y),
    low: numbers(g.dataset.low), high: numbers(g.dataset.high), beside: numbers(g.dataset.beside),
  })),
}));
const visible = chart => chart.series.filter(s => !hidden.has(s.arm));
const companions = chart =>
  chart.share === '0' ? [chart] : charts.filter(c => c.share === chart.share);
const M = (points, first = 'M') =>
  points.map(([x, y], i) => (i ? 'L' : first) + x.toFixed(1) + ' ' + y.toFixed(1)).join('');

const drawLineAxes = (chart, x, y) => {
  const add = (name, attributes, text) => chart.axes.append(node(name, attributes, text));
  chart.axes.replaceChildren();
  for (const v of y.ticks) {
    const at = place(y, v), large = Math.abs(v) >= 1e5;
    add('path', {class: 'grid', d: `M${x.from} ${at.toFixed(1)}H${x.to}`});
    add('text', {class: 'tick', x: x.from - 6, y: at + 4, 'text-anchor': 'end'},
        large ? digits(v / 1e3, 6) + 'k' : digits(v, 6));
  }
  for (const v of x.ticks) {
    const at = place(x, v).toFixed(1);
    add('path', {class: 'grid', d: `M${at} ${y.from}v5`});
    add('text', {class: 'tick', x: at, y: y.from + 18, 'text-anchor': 'middle'}, digits(v, 10));
  }
  add('path', {class: 'axis', d: `M${x.from} ${y.to}V${y.from}H${x.to}`});
};
const moveMarks = (chart, x, y) => {
  for (const g of all('.trained, .bound', chart.svg)) {
    const a = g.matches('.bound') ? y : x, v = Number(g.dataset.at), [path, text] = g.children;
    const inside = v > a.low && v < a.high;
    g.style.display = inside ? '' : 'none';
    if (!inside) continue;
    const at = place(a, v), right = at > 0.7 * x.to;
    if (a === y) {
      path.setAttribute('d', `M${x.from} ${at.toFixed(1)}H${x.to}`);
      text.setAttribute('y', at - 4);
    } else {
      path.setAttribute('d', `M${at.toFixed(1)} ${y.from}V${y.to}`);
      text.setAttribute('x', right ? at - 4 : at + 4);
      text.setAttribute('text-anchor', right ? 'end' : 'start');
    }
  }
};
const drawSeries = (s, x, y) => {
  const known = s.x.map((v, i) => i).filter(i => !Number.isNaN(s.x[i]) && !Number.isNaN(s.y[i]));
  const at = i => [place(x, s.x[i]), place(y, s.y[i])];
  let d = '', before = -2;
  for (const i of known) {
    d += M([at(i)], i === before + 1 ? 'L' : 'M');
    before = i;
  }
  s.g.querySelector('.line').setAttribute('d', d);
  const band = s.g.querySelector('.band'), far = 9999;
  if (band !== null) {
    const end = v => y.log && v <= 1e-30 ? far : Math.max(-far, Math.min(place(y, v), far));
    const edge = (list, order) => order.filter(i => !Number.isNaN(list[i]))
      .map(i => [place(x, s.x[i]), end(list[i])]);
    band.setAttribute('d', M([...edge(s.high, known), ...edge(s.low, [...known].reverse())]) + 'z');
  }
  all('.point', s.g).forEach((p, k) => {
    const [px, py] = at(known[k]), shape = p.getAttribute('d').replace(/^M[^m]*/, '');
    p.setAttribute('d', `M${px.toFixed(1)} ${py.toFixed(1)}${shape}`);
  });
  const own = s.g.querySelector('.own');
  if (own !== null) {
    const to = place(x, Number(s.g.dataset.own)), next = known.findIndex(i => at(i)[0] > to - 1e-6);
    const [bx, by] = at(known[next]), [ax, ay] = next > 0 ? at(known[next - 1]) : [bx, by];
    const y = bx > ax ? ay + (by - ay) * Math.min((to - ax) / (bx - ax), 1) : by;
    own.setAttribute('d', `M${to.toFixed(1)} ${(y - 8).toFixed(1)}v16`);
  }
  if (known.length === 0) return null;
  const [ex, ey] = at(known[known.length - 1]);
  return [ex, Math.min(Math.max(ey, y.to), y.from)];
};
const placeNames = (ends, x, y) => {
  ends.sort((a, b) => a.at[1] - b.at[1]);
  let edge = y.to - 12;
  for (const e of ends) edge = e.y = Math.max(e.at[1], edge + 12);
  edge = y.from + 12;
  for (const e of [...ends].reverse()) edge = e.y = Math.min(e.y, edge - 12);
  for (const {g, at, y: to} of ends) {
    g.querySelector('.end').setAttribute('y', to + 4);
    g.querySelector('.lead').setAttribute(
      'd', `M${at[0] + 4} ${at[1]}L${x.to + 8} ${to}H${x.to + 12}`);
  }
};
// The values of a line that are farthest from 0, and which lines leave the frame (chart.c, frame_of).
const reachOf = s => s.y.reduce(
  (far, v, i) => !Number.isNaN(s.x[i]) && Math.abs(v) > Math.abs(far) ? v : far, 0);
const leaving = chart => {
  const lines = visible(chart).filter(s => reachOf(s) !== 0)
    .sort((a, b) => Math.abs(reachOf(b)) - Math.abs(reachOf(a)));
  const reach = lines.map(s => Math.abs(reachOf(s)));
  let leave = chart.most ? Math.min(4, Math.ceil(lines.length / 2) - 1) : 0;
  while (leave > 0 && reach[leave - 1] <= 4 * reach[leave]) leave--;
  return lines.slice(0, Math.max(leave, 0));
};
const sayWhoLeaves = chart => {
  const lines = leaving(chart), one = lines.length === 1;
  if (!chart.most) return;
  const name = one ? lines[0].g.querySelector('.end')?.textContent ?? names.get(lines[0].arm).textContent
                   : `${lines.length} lines`;
  chart.svg.querySelector('.leaving').textContent =
    lines.length === 0 ? '' : `${name} leave${one ? 's' : ''} the frame, to ${short(reachOf(lines[0]))}`;
};
const lineAxes = chart => {
  const x = {log: chart.log[0], low: Infinity, high: 0, from: chart.box[0], to: chart.box[1]};
  const y = {log: chart.log[1], low: Infinity, high: -Infinity, from: chart.box[2], to: chart.box[3]};
  const left = leaving(chart);
  for (const s of companions(chart).flatMap(visible)) {
    widen(x, s.x);
    if (!left.includes(s)) widen(y, s.y); // bands are cut at the edge: of two seeds they are very wide
  }
  if (!Number.isFinite(x.low) || !Number.isFinite(y.low)) return null;
  widen(y, chart.shown);
  finishLengths(x);
  finishValues(y);
  return {x, y};
};
const drawLines = chart => {
  const found = lineAxes(chart);
  if (found === null) return;
  const {x, y} = found;
  drawLineAxes(chart, x, y);
  moveMarks(chart, x, y);
  const ends = [];
  for (const s of visible(chart)) {
    const at = drawSeries(s, x, y);
    if (at !== null && s.g.querySelector('.end') !== null) ends.push({g: s.g, at});
  }
  placeNames(ends, x, y);
  sayWhoLeaves(chart);
};

const drawBars = chart => {
  const [from, to, top, bottom] = chart.box, step = Number(chart.svg.dataset.step);
  const x = {low: 0, high: 0, from, to};
  const values = g => all('[data-value]', g).map(r => Number(r.dataset.value))
    .concat(all('.whisker', g).flatMap(w => [Number(w.dataset.low), Number(w.dataset.high)]));
  for (const s of companions(chart).flatMap(visible)) widen(x, values(s.g));
  if (x.low === x.high) x.high = 1;
  x.ticks = evenTicks(x);
  const end = top + step * visible(chart).length;
  const before = chart.svg.viewBox.baseVal.height, height = Math.trunc(end) + bottom;
  chart.svg.setAttribute('viewBox', `0 0 480 ${height}`);
  for (const name of all(':scope > .name', chart.svg))
    name.setAttribute('y', Number(name.getAttribute('y')) + height - before);
  chart.axes.replaceChildren();
  for (const v of x.ticks) {
    const at = place(x, v).toFixed(1), last = height - bottom;
    chart.axes.append(
      node('path', {class: v === 0 ? 'axis' : 'grid', d: `M${at} ${top}V${last}`}),
      node('text', {class: 'tick', x: at, y: last + 16, 'text-anchor': 'middle'}, digits(v, 6)));
  }
  let gone = 0;
  for (const s of chart.series) {
    s.g.setAttribute('transform', `translate(0 ${-gone * step})`);
    gone += hidden.has(s.arm);
    for (const bar of all('.bar', s.g)) {
      const zero = place(x, 0), tip = place(x, Number(bar.dataset.value));
      let next = bar.nextElementSibling, edge = Math.max(zero, tip);
      bar.setAttribute('x', Math.min(zero, tip).toFixed(1));
      bar.setAttribute('width', Math.max(Math.abs(tip - zero), 0.8).toFixed(1));
      if (next.matches('.whisker')) {
        const high = place(x, Number(next.dataset.high)), low = place(x, Number(next.dataset.low));
        const y = next.getAttribute('d').match(/ ([\d.]+)H/)[1];
        next.setAttribute('d', `M${low.toFixed(1)} ${y}H${high.toFixed(1)}`);
        edge = Math.max(edge, high);
        next = next.nextElementSibling;
      }
      next.setAttribute('x', edge + 4);
    }
  }
};
const draw = chart => (chart.kind === 'lines' ? drawLines : drawBars)(chart);

// ---- hiding ----

const remember = () => {
  try { sessionStorage.setItem(location.pathname, JSON.stringify([...hidden])); } catch (e) {}
};
const show = () => {
  for (const e of all('.series, tr[data-arm]'))
    e.classList.toggle('hidden', hidden.has(e.dataset.arm));
  for (const b of all('.legend button'))
    b.setAttribute('aria-pressed', String(!hidden.has(b.dataset.arm)));
  charts.forEach(draw);
};
for (const b of all('.legend button'))
  b.addEventListener('click', () => {
    if (!hidden.delete(b.dataset.arm)) hidden.add(b.dataset.arm);
    remember();
    show();
  });

// A name that is pointed at: its line stands out.
for (const b of all('.legend button')) {
  const figure = b.closest('figure'), svg = figure.querySelector('svg.chart');
  const light = on => {
    svg.classList.toggle('dim', on && !hidden.has(b.dataset.arm));
    for (const g of all('g.series', svg))
      g.classList.toggle('lit', on && g.dataset.arm === b.dataset.arm);
  };
  for (const event of ['pointerenter', 'focus', 'click']) b.addEventListener(event, () => light(true));
  for (const event of ['pointerleave', 'blur']) b.addEventListener(event, () => light(false));
}

// ---- reading values ----

const names = new Map(all('.legend button').map(b => [b.dataset.arm, b]));
const readOut = (chart, place_x) => {
  const figure = chart.svg.closest('figure'), x = lineAxes(chart)?.x;
  const known = visible(chart).flatMap(s => s.x.filter((v, i) => !Number.isNaN(s.y[i])));
  figure.querySelector('.read')?.remove();
  chart.svg.querySelector('.cross')?.remove();
  if (place_x === null || known.length === 0) return;
  const nearest = known.reduce((a, b) =>
    Math.abs(place(x, b) - place_x) < Math.abs(place(x, a) - place_x) ? b : a);
  const at = place(x, nearest);
  const rows = visible(chart).map(s => {
    const order = s.x.map((v, i) => i).filter(i => !Number.isNaN(s.y[i]))
      .sort((a, b) => Math.abs(place(x, s.x[a]) - at) - Math.abs(place(x, s.x[b]) - at));
    return {s, i: order[0]};
  }).filter(r => r.i !== undefined && Math.abs(place(x, r.s.x[r.i]) - at) < 12)
    .sort((a, b) => b.s.y[b.i] - a.s.y[a.i]);
  chart.svg.append(node('path', {class: 'cross', d: `M${at.toFixed(1)} ${chart.box[2]}V${chart.box[3]}`}));
  const unit = rows.some(r => r.s.beside.length > 0) ? `; last column: ${chart.svg.dataset.unit}` : '';
  const panel = element('div', 'read', `at ${digits(nearest, 5)}${unit}`);
  panel.dataset.x = nearest;
  const table = element('table', '');
  for (const {s, i} of rows) {
    const row = table.insertRow(), name = row.insertCell();
    row.dataset.arm = s.arm;
    name.append(...[...names.get(s.arm).childNodes].map(c => c.cloneNode(true)));
    row.insertCell().textContent = short(s.y[i]);
    row.insertCell().textContent =
      s.low[i] < s.high[i] ? `${short(s.low[i])} to ${short(s.high[i])}` : '';
    if (s.beside.length > 0) row.insertCell().textContent = short(s.beside[i]);
  }
  panel.append(table);
  figure.append(panel);
  // below the plot, over the legend; where the window ends there, beside the pointer
  const drawing = chart.svg.getBoundingClientRect(), frame = figure.getBoundingClientRect();
  const below = drawing.bottom + panel.offsetHeight <= innerHeight;
  if (below) panel.style.top = `${drawing.bottom - frame.top}px`;
  panel.style[below || at > (x.from + x.to) / 2 ? 'left' : 'right'] = '.8rem';
};
for (const chart of charts.filter(c => c.kind === 'lines')) {
  const move = e => {
    const at = new DOMPoint(e.clientX, e.clientY).matrixTransform(chart.svg.getScreenCTM().inverse());
    readOut(chart, at.x);
  };
  chart.svg.addEventListener('pointermove', move);
  chart.svg.addEventListener('pointerdown', move);
  chart.svg.addEventListener('pointerleave', () => readOut(chart, null));
}

// ---- drawings as files ----

const kept = ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'stroke-linejoin', 'opacity',
              'font-family', 'font-size', 'font-weight', 'display'];
const asFile = svg => {
  const copy = svg.cloneNode(true), from = all('*', svg), to = all('*', copy);
  from.forEach((e, i) => {
    const style = getComputedStyle(e);
    to[i].setAttribute('style', kept.map(k => `${k}:${style.getPropertyValue(k)}`).join(';'));
  });
  for (const e of all('.hidden, .cross', copy)) e.remove();
  for (const e of [copy, ...all('*', copy)])
    for (const name of e.getAttributeNames()) if (/^(class|data-)/.test(name)) e.removeAttribute(name);
  const {width, height} = svg.viewBox.baseVal;
  copy.setAttribute('width', width);
  copy.setAttribute('height', height);
  const paper = getComputedStyle(svg.closest('figure')).backgroundColor;
  copy.prepend(node('rect', {width, height, fill: paper}));
  return new XMLSerializer().serializeToString(copy);
};
for (const figure of all('figure')) {
  const tools = element('div', 'tools'), button = element('button', '', 'save as SVG');
  const title = figure.querySelector('figcaption').textContent;
  button.type = 'button';
  button.addEventListener('click', () => {
    const link = document.createElement('a');
    link.download = title.replace(/[^A-Za-z0-9]+/g, '-').replace(/^-|-$/g, '').toLowerCase() + '.svg';
    link.href = URL.createObjectURL(
      new Blob([asFile(figure.querySelector('svg.chart'))], {type: 'image/svg+xml'}));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  tools.append(button);
  figure.append(tools);
}

// ---- tables ----

const value = (row, i) => {
  const v = row.cells[i].dataset.value;
  return v === '' ? NaN : Number.isNaN(Number(v)) ? v : Number(v);
};
for (const b of all('thead button'))
  b.addEventListener('click', () => {
    const th = b.parentNode, body = th.closest('table').tBodies[0], i = th.cellIndex;
    const up = th.getAttribute('aria-sort') !== 'ascending';
    for (const other of th.parentNode.cells) other.removeAttribute('aria-sort');
    th.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    const known = v => typeof v === 'string' || !Number.isNaN(v);
    const rows = [...body.rows].sort((a, c) => {
      const x = value(a, i), y = value(c, i);
      if (!known(x) || !known(y)) return known(y) - known(x);
      return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
    });
    body.append(...rows);
  });

try {
  for (const arm of JSON.parse(sessionStorage.getItem(location.pathname) ?? '[]'))
    if (names.has(arm)) hidden.add(arm);
} catch (e) {}
if (hidden.size > 0) show();
