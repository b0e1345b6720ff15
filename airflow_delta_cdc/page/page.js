// The page "Delta CDC": one component for all its places, on the React, router and Chakra of Airflow's UI.
// Text reaches the document only as React children, which escapes it.

const { React, ReactRouterDOM, ChakraUI } = globalThis;
const { useCallback, useEffect, useMemo, useState } = React;
const { Link: RouterLink, useLocation, useSearchParams } = ReactRouterDOM;
const { Box, Button, Flex, Heading, Input, Spinner, Text } = ChakraUI;
const h = React.createElement;

const PAGE = "/plugin/delta-cdc";
const EVERY_MS = 30_000;
const PER_SCREEN = 50;

const STATES = {
  failed: { label: "Failed", palette: "red", help: "The last run failed" },
  retrying: { label: "Retrying", palette: "yellow", help: "The last try failed; another one follows" },
  expiring: { label: "Expiring", palette: "orange", help: "Soon it cannot go on any more" },
  late: { label: "Late", palette: "orange", help: "The oldest change that is not applied is older than freshness allows" },
  behind: { label: "Behind", palette: "yellow", help: "Changes of the source are not applied" },
  running: { label: "Running", palette: "cyan", help: "A run is at work" },
  hidden: { label: "Not shown", palette: "gray", help: "You may not read what the state depends on" },
  never: { label: "No run", palette: "gray", help: "No run has worked on it yet" },
  ok: { label: "OK", palette: "green", help: "The last run succeeded, and no known change is overdue" },
};
const LEVELS = { error: "red", warning: "orange", note: "gray" };
const ROWS = [
  { name: "inserted", sign: "+", color: "blue" },
  { name: "updated", sign: "~", color: "amber" },
  { name: "deleted", sign: "\u2212", color: "rose" },
  { name: "closed", sign: "closed ", color: "teal" },
];

// Tables are plain elements: fifty rows of Chakra's components take a second to render, these some milliseconds.
const CSS = `
.delta-cdc-table { border-collapse: collapse; font-size: 14px; width: 100%; }
.delta-cdc-table th { color: var(--chakra-colors-fg-muted); font-size: 12px; font-weight: 500; padding: 8px; text-align: left; white-space: nowrap; }
.delta-cdc-table td { border-top: 1px solid var(--chakra-colors-border); padding: 8px; vertical-align: top; }
.delta-cdc-table tr.under td { border-top: 0; padding-top: 0; }
.delta-cdc-table .nowrap { white-space: nowrap; }
.delta-cdc-table .text { max-width: 520px; overflow-wrap: anywhere; }
.delta-cdc-table .warning { color: var(--chakra-colors-fg-warning); font-weight: 700; }
.delta-cdc-muted { color: var(--chakra-colors-fg-muted); font-size: 12px; overflow-wrap: anywhere; }
.delta-cdc-state { border-radius: 4px; display: inline-block; font-size: 12px; padding: 1px 6px; white-space: nowrap; }
.delta-cdc-to { color: var(--chakra-colors-fg-info); overflow-wrap: anywhere; }
.delta-cdc-to:hover { text-decoration: underline; }
.delta-cdc-name { font-weight: 600; }
.delta-cdc-finding { border-left: 4px solid; border-radius: 3px; overflow-wrap: anywhere; padding: 8px 12px; white-space: pre-wrap; }
.delta-cdc-finding a { margin-right: 16px; }
`;

// -- data ----------------------------------------------------------------------------------------------------
const address = (path, parameters = {}) => {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of [value].flat()) {
      if (one !== undefined && one !== null) url.searchParams.append(name, one);
    }
  }
  return url;
};

const problem = async (answer) => {
  let detail = "";
  try {
    const body = await answer.json();
    detail = typeof body.detail === "string" ? body.detail : JSON.stringify(body.detail ?? body);
  } catch {
    detail = answer.statusText;
  }
  return new Error(`${answer.status}: ${detail}`);
};

/** What a route answers, asked for again while the page is visible; an error keeps the last answer. */
const useAnswer = (path, parameters, isWanted = true) => {
  const url = address(`delta-cdc/api/${path}`, parameters).href;
  const [found, setFound] = useState({ url: null, data: null, error: null });
  const [round, setRound] = useState(0);
  useEffect(() => {
    if (!isWanted) return undefined;
    let isCurrent = true;
    const ask = async () => {
      if (document.hidden) return;
      try {
        const answer = await fetch(url, { credentials: "same-origin" });
        if (!answer.ok) throw await problem(answer);
        const data = await answer.json();
        if (isCurrent) setFound({ url, data, error: null });
      } catch (error) {
        if (isCurrent) setFound((last) => ({ url, data: last.url === url ? last.data : null, error }));
      }
    };
    ask();
    const timer = setInterval(ask, EVERY_MS);
    document.addEventListener("visibilitychange", ask);
    return () => {
      isCurrent = false;
      clearInterval(timer);
      document.removeEventListener("visibilitychange", ask);
    };
  }, [url, isWanted, round]);
  const again = useCallback(() => setRound((last) => last + 1), []);
  return { data: found.url === url ? found.data : null, error: found.error, again };
};

// -- text ----------------------------------------------------------------------------------------------------
/** The time zone that Airflow's UI is set to. */
const zone = () => {
  try {
    return JSON.parse(localStorage.getItem("timezone")) || undefined;
  } catch {
    return localStorage.getItem("timezone") || undefined;
  }
};

const number = (value) => (value === undefined || value === null ? "\u2013" : Number(value).toLocaleString("en-US"));

const duration = (seconds) => {
  if (seconds === undefined || seconds === null) return "\u2013";
  if (seconds < 60) return `${seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)} s`;
  const two = (unit, name, part, small) => {
    const rest = Math.floor((seconds % unit) / part);
    return `${Math.floor(seconds / unit)} ${name}${rest ? ` ${rest} ${small}` : ""}`;
  };
  if (seconds < 3600) return two(60, "min", 1, "s");
  return seconds < 86400 ? two(3600, "h", 60, "min") : two(86400, "d", 3600, "h");
};

/** The same, as exact as a glance needs. */
const span = (seconds) => duration(seconds < 3600 ? (seconds < 60 ? Math.floor(seconds) : seconds - (seconds % 60)) : seconds);

const ago = (iso) => {
  const seconds = (Date.now() - new Date(iso).getTime()) / 1000;
  return seconds >= 0 ? `${span(seconds)} ago` : `in ${span(-seconds)}`;
};

const clock = (iso) => {
  if (!iso) return "\u2013";
  const options = { dateStyle: "medium", timeStyle: "short", hour12: false };
  try {
    return new Intl.DateTimeFormat("en-GB", { ...options, timeZone: zone() }).format(new Date(iso));
  } catch {
    return new Intl.DateTimeFormat("en-GB", options).format(new Date(iso));
  }
};

/** A text with its times in the zone of the UI. */
const local = (text) => text.replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z)/gu, clock);

const bytes = (value) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  let size = value;
  for (; size >= 1024 && at < units.length - 1; at += 1) size /= 1024;
  return `${at === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${units[at]}`;
};

const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

const lag = (item) => {
  if (item.lag_versions === undefined) return "unknown";
  if (item.lag_versions === 0) return "0 versions";
  return plural(item.lag_versions, "version");
};

const short = (table) => (table ? table.replace(/\/+$/u, "").split("/").pop() : "\u2013");

const runPath = (run) => `/dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.run_id)}`;
const taskPath = (run) => {
  const mapped = run.map_index >= 0 ? `/mapped/${run.map_index}` : "";
  return `${runPath(run)}/tasks/${encodeURIComponent(run.task_id)}${mapped}`;
};
/** By its id, because several pipelines may have one name. */
const pipelinePath = ({ id }) => `${PAGE}?${new URLSearchParams({ pipeline: id })}`;

// -- small parts ---------------------------------------------------------------------------------------------
const To = ({ to, isName, children }) =>
  h(RouterLink, { className: isName ? "delta-cdc-to delta-cdc-name" : "delta-cdc-to", to }, children);

const Moment = ({ iso }) => h("span", { title: iso }, clock(iso));

const Tag = ({ palette, title, children }) =>
  h(
    "span",
    { className: "delta-cdc-state", style: { background: `var(--chakra-colors-${palette}-solid)`, color: `var(--chakra-colors-${palette}-contrast)` }, title },
    children,
  );

const State = ({ state }) => h(Tag, { palette: STATES[state]?.palette ?? "gray", title: STATES[state]?.help }, STATES[state]?.label ?? state);

/** What the user may not read, in words; Airflow's own pages leave it out, too. */
const Hidden = ({ names }) =>
  names?.length ? h(Muted, { "data-testid": "delta-cdc-hidden", style: { marginBottom: 12 } }, `Not shown, because you do not have permission to read them: ${names.join(", ")}.`) : null;

const RUN_PALETTES = { failed: "red", retrying: "yellow", running: "cyan", success: "green" };
const outcome = ({ state }) => (state === "hidden" ? "not shown" : state);
const RunState = (run) => h(Tag, { palette: RUN_PALETTES[run.state] ?? "gray" }, run.is_dry_run ? `dry run: ${outcome(run)}` : outcome(run));

// After a failed run, an older deadline may be too late: newer commits can be removed earlier.
const deadlineNote = (item) => (item.readable_as_of ? `since ${clock(item.readable_as_of)}` : item.readable_until ? ago(item.readable_until) : undefined);
const Deadline = ({ item }) => (item.readable_as_of ? h("span", { title: `As of ${clock(item.readable_as_of)}: ${clock(item.readable_until)}` }, "unknown") : h(Moment, { iso: item.readable_until }));

const Muted = ({ children, ...more }) => h("div", { className: "delta-cdc-muted", ...more }, children);

const Moved = ({ rows }) => {
  if (!rows) return "\u2013";
  const shown = ROWS.filter(({ name }) => rows[name]);
  if (shown.length === 0) return h("span", { className: "delta-cdc-muted" }, "none");
  return shown.map(({ name, sign }, at) => h("span", { key: name, style: { marginLeft: at ? 8 : 0, whiteSpace: "nowrap" }, title: name }, `${sign}${number(rows[name])}`));
};

/** A table of plain elements. */
const Table = ({ columns, children, ...more }) =>
  h(
    "div",
    { style: { overflowX: "auto" } },
    h(
      "table",
      { className: "delta-cdc-table", ...more },
      h("thead", null, h("tr", null, columns.map((name) => h("th", { key: name, scope: "col" }, name)))),
      h("tbody", null, children),
    ),
  );

const Trouble = ({ error }) =>
  h(Box, { bg: "bg.error", borderRadius: "md", color: "fg.error", p: 3, role: "alert" }, `This part cannot be shown: ${error.message}`);

const Waiting = () => h(Flex, { justify: "center", p: 10 }, h(Spinner, { "aria-label": "Loading" }));

/** One finding: what is the matter, and what to do. */
const Finding = ({ finding, children }) => {
  const palette = LEVELS[finding.level];
  return h(
    "div",
    { className: "delta-cdc-finding", style: { background: `var(--chakra-colors-${palette}-subtle)`, borderLeftColor: color(palette) } },
    h("div", { className: "delta-cdc-name" }, local(finding.text)),
    finding.remedy ? h("div", null, h("strong", null, "What to do: "), local(finding.remedy)) : null,
    children ? h("div", null, children) : null,
  );
};

const RunLinks = ({ run }) => [
  run.has_log ? h(To, { key: "log", to: taskPath(run) }, "Log of the task") : null,
  h(To, { key: "run", to: runPath(run) }, "The run"),
];

// -- plots ---------------------------------------------------------------------------------------------------
const color = (palette) => `var(--chakra-colors-${palette}-solid)`;

const Spark = ({ values }) => {
  if (!values || values.length === 0) return h(Text, { as: "span", color: "fg.muted" }, "\u2013");
  const most = Math.max(1, ...values);
  const width = 5;
  return h(
    "svg",
    { "aria-label": `Rows of the last ${values.length} commits: ${values.join(", ")}`, height: 22, role: "img", width: 20 * width },
    h("title", null, `Rows of the last ${values.length} commits: ${values.map(number).join(", ")}`),
    values.map((value, at) => {
      const height = Math.max(1, (value / most) * 20);
      return h("rect", { fill: color("blue"), height, key: at, width: width - 1, x: (20 - values.length + at) * width, y: 21 - height });
    }),
  );
};

/** Bars over time; each point has a time, and a value for each series. */
const Plot = ({ title, points, series, unit = number, empty }) => {
  const width = 620;
  const height = 150;
  const [left, bottom, top] = [76, 20, 8];
  const known = points.filter((point) => series.some(({ value }) => value(point) !== undefined && value(point) !== null));
  const totals = known.map((point) => series.reduce((sum, { value }) => sum + (value(point) || 0), 0));
  const most = Math.max(...totals, 0);
  const scale = (value) => ((height - bottom - top) * value) / (most || 1);
  const step = (width - left) / Math.max(known.length, 16);
  const bars = known.flatMap((point, at) => {
    let floor = height - bottom;
    const text = `${clock(point.as_of)}: ${series.map(({ name, value }) => `${unit(value(point) || 0)}${series.length > 1 ? ` ${name}` : ""}`).join(", ")}`;
    const parts = series.map(({ name, palette, value }) => {
      // A line shows that nothing was there, and not that nothing is known.
      const size = Math.max(scale(value(point) || 0), series.length === 1 ? 1.5 : 0);
      floor -= size;
      return h("rect", { fill: color(palette), height: size, key: `${at}${name}`, width: Math.max(1, step - 2), x: left + at * step + 1, y: floor });
    });
    const hit = h("rect", { fill: "transparent", height: height - bottom, key: `${at}`, width: step, x: left + at * step, y: 0 }, h("title", null, text));
    return [...parts, hit];
  });
  const line = (value) =>
    h(
      React.Fragment,
      { key: value },
      h("line", { stroke: "var(--chakra-colors-border)", x1: left, x2: width, y1: height - bottom - scale(value), y2: height - bottom - scale(value) }),
      h("text", { fill: "var(--chakra-colors-fg-muted)", fontSize: 11, textAnchor: "end", x: left - 6, y: height - bottom - scale(value) + 4 }, unit(value)),
    );
  const label = (point, anchor, x) =>
    h("text", { fill: "var(--chakra-colors-fg-muted)", fontSize: 11, key: anchor, textAnchor: anchor, x, y: height - 5 }, clock(point.as_of));
  return h(
    Box,
    { borderRadius: "md", borderWidth: 1, minW: 0, p: 3 },
    h(
      Flex,
      { align: "baseline", gap: 3, justify: "space-between", mb: 2, wrap: "wrap" },
      h(Heading, { size: "sm" }, title),
      series.length > 1
        ? h(
            Flex,
            { gap: 3 },
            series.map(({ name, palette }) => h(Flex, { align: "center", fontSize: "xs", gap: 1, key: name }, h(Box, { bg: `${palette}.solid`, boxSize: 2.5 }), name)),
          )
        : null,
    ),
    known.length === 0
      ? h(Muted, null, empty)
      : h(
          "svg",
          { "aria-label": title, role: "img", style: { display: "block", height: "auto", maxWidth: "100%" }, viewBox: `0 0 ${width} ${height}` },
          line(0),
          most > 0 ? line(most) : null,
          bars,
          label(known[0], "start", left),
          // Below fewer bars, the second date would overprint the first.
          known.length * step > 260 ? label(known.at(-1), "end", left + known.length * step) : null,
        ),
  );
};

// What is in quarantine, or if no run has published it, what the last run put there.
const inQuarantine = (item) => item.held_rows ?? item.quarantined;

// -- the list ------------------------------------------------------------------------------------------------
const Row = ({ item, trend, withGroup }) => {
  const { run } = item;
  const isRed = item.state === "failed" || item.state === "retrying";
  const place = withGroup ? `${item.group ?? item.dag_id}${item.is_paused ? " (paused)" : ""}: ` : "";
  const cells = h(
    "tr",
    { key: "row" },
    h("td", null, h(State, { state: item.state })),
    h("td", { style: { maxWidth: 320 } }, h(To, { isName: true, to: pipelinePath(item) }, item.pipeline), h(Muted, { title: `${item.source ?? "?"} \u2192 ${item.target ?? "?"}` }, `${place}${short(item.source)} \u2192 ${short(item.target)}`)),
    h("td", { className: "nowrap" }, lag(item), item.behind_since ? h(Muted, { title: item.behind_since }, `for ${ago(item.behind_since).replace(" ago", "")}`) : null),
    h(
      "td",
      { className: "nowrap", title: "Version of the source that is in the target, of the newest one at the last look" },
      number(item.version),
      // A failed run has not looked: "8 of 8" beside an unknown lag would say that nothing is missing.
      item.source_version === undefined || item.lag_versions === undefined ? null : h("span", { style: { color: "var(--chakra-colors-fg-muted)" } }, ` of ${number(item.source_version)}`),
    ),
    h(
      "td",
      { className: "nowrap" },
      run ? h("span", { title: run.started }, h(To, { to: run.task_id ? taskPath(run) : runPath(run) }, run.started ? ago(run.started) : "queued")) : "\u2013",
      run ? h(Muted, null, `${outcome(run)}${run.seconds === null ? "" : `, ${duration(run.seconds)}`}`) : null,
    ),
    h("td", { className: "nowrap" }, h(Moved, { rows: item.rows })),
    h("td", { className: inQuarantine(item) ? "warning" : undefined }, number(inQuarantine(item))),
    h("td", { className: "nowrap" }, h(Deadline, { item }), deadlineNote(item) ? h(Muted, null, deadlineNote(item)) : null),
    h("td", null, h(Spark, { values: trend })),
  );
  if (!isRed) return cells;
  // The failure is the first one.
  return [cells, h("tr", { className: "under", key: "error" }, h("td", { colSpan: COLUMNS.length }, h(Finding, { finding: item.findings[0] }, run ? h(RunLinks, { run }) : null)))];
};

const COLUMNS = ["State", "Pipeline", "Behind", "Watermark", "Last run", "Rows", "In quarantine", "Readable until", "Trend"];

const Pipelines = ({ items, withGroup = true }) => {
  const [screen, setScreen] = useState(0);
  const last = Math.max(0, Math.ceil(items.length / PER_SCREEN) - 1);
  const at = Math.min(screen, last);
  const shown = items.slice(at * PER_SCREEN, (at + 1) * PER_SCREEN);
  const trends = useAnswer("trends", { name: shown.map(({ id }) => id) }, shown.length > 0);
  if (items.length === 0) return h(Box, { p: 6 }, h(Muted, null, "No pipeline is like this."));
  return h(
    Box,
    null,
    h(
      Table,
      { columns: COLUMNS, "data-testid": "delta-cdc-pipelines" },
      shown.map((item) => h(Row, { item, key: item.id, trend: trends.data?.[item.id], withGroup })),
    ),
    last > 0
      ? h(
          Flex,
          { align: "center", gap: 3, justify: "flex-end", mt: 3 },
          h(Button, { disabled: at === 0, onClick: () => setScreen(at - 1), size: "xs", variant: "outline" }, "Back"),
          h(Text, { fontSize: "sm" }, `${at * PER_SCREEN + 1}\u2013${Math.min(items.length, (at + 1) * PER_SCREEN)} of ${number(items.length)}`),
          h(Button, { disabled: at === last, onClick: () => setScreen(at + 1), size: "xs", variant: "outline" }, "Next"),
        )
      : null,
  );
};

const Overview = () => {
  const [search, setSearch] = useSearchParams();
  const { data, error } = useAnswer("pipelines", {});
  // The address follows the field, which has to keep up with the typist.
  const [sought, setSought] = useState(search.get("q") ?? "");
  const wanted = { state: search.get("state") ?? "", group: search.get("group") ?? "" };
  const change = (name, value) =>
    setSearch(
      (before) => {
        const next = new URLSearchParams(before);
        if (value) next.set(name, value);
        else next.delete(name);
        return next;
      },
      { replace: true },
    );
  const groups = useMemo(() => [...new Set((data?.pipelines ?? []).map(({ group, dag_id }) => group ?? dag_id))].sort(), [data]);
  const items = useMemo(() => {
    const text = sought.toLowerCase();
    return (data?.pipelines ?? []).filter(
      (item) =>
        (!wanted.state || item.state === wanted.state) &&
        (!wanted.group || (item.group ?? item.dag_id) === wanted.group) &&
        (!text || [item.pipeline, item.source, item.target, item.dag_id, item.error?.class].some((one) => one?.toLowerCase().includes(text))),
    );
  }, [data, sought, wanted.state, wanted.group]);
  if (!data) return error ? h(Trouble, { error }) : h(Waiting);
  const { totals } = data;
  return h(
    Box,
    null,
    h(
      Flex,
      { align: "baseline", gap: 4, justify: "space-between", mb: 4, wrap: "wrap" },
      h(Heading, { size: "xl" }, "Delta CDC"),
      h(Muted, null, `${plural(totals.pipelines, "pipeline")}; stored figures, shown at ${clock(data.as_of)}. Each is as of the pipeline\u2019s last run.`),
    ),
    error ? h(Box, { mb: 3 }, h(Trouble, { error })) : null,
    h(
      Flex,
      { gap: 2, mb: 4, wrap: "wrap" },
      Object.entries(STATES).map(([state, { label, palette, help }]) =>
        h(
          Button,
          {
            "aria-pressed": wanted.state === state,
            colorPalette: palette,
            "data-testid": `delta-cdc-state-${state}`,
            disabled: !totals.states[state] && wanted.state !== state,
            key: state,
            onClick: () => change("state", wanted.state === state ? "" : state),
            size: "sm",
            title: help,
            variant: wanted.state === state ? "solid" : "surface",
          },
          `${label} ${number(totals.states[state])}`,
        ),
      ),
      h(Box, { flex: 1 }),
      h(Flex, { align: "center", fontSize: "sm", gap: 3 }, h(Text, { color: "fg.muted" }, "Last runs:"), h(Moved, { rows: totals.rows }), h(Text, { color: totals.quarantined ? "fg.warning" : "fg.muted" }, `in quarantine: ${number(totals.quarantined)}`), h(Text, { color: "fg.muted" }, `behind: ${lag(totals)}`)),
    ),
    h(
      Flex,
      { gap: 2, mb: 3, wrap: "wrap" },
      h(Input, { "aria-label": "Search", maxW: "360px", onChange: (event) => {
          setSought(event.target.value);
          change("q", event.target.value);
        }, placeholder: "Search pipeline, table, DAG or error", size: "sm", value: sought }),
      h(Choice, { label: "Group", onChange: (value) => change("group", value), options: [["", "All groups"], ...groups.map((group) => [group, group])], value: wanted.group }),
    ),
    h(Hidden, { names: data.hidden }),
    h(Pipelines, { items }),
  );
};

const Choice = ({ label, onChange, options, value }) =>
  h(
    ChakraUI.NativeSelectRoot,
    { maxW: "260px", size: "sm" },
    h(
      ChakraUI.NativeSelectField,
      { "aria-label": label, onChange: (event) => onChange(event.target.value), value },
      options.map(([key, text]) => h("option", { key, value: key }, text)),
    ),
    h(ChakraUI.NativeSelectIndicator),
  );

// -- runs by hand --------------------------------------------------------------------------------------------
/** What each button asks Airflow for, by the mode of the form. The server sends the names of modes and fields: item.form. */
const ACTIONS = {
  incremental: {
    fields: ["dry_run"],
    about: "Applies everything new since the watermark.",
  },
  backfill: {
    fields: ["starting_version", "ending_version", "versions_per_commit", "dry_run"],
    about: "Goes on from the watermark up to a version of the source, in one or several commits.",
  },
  repair: {
    fields: ["starting_version", "ending_version", "repair_keys", "repair_quarantined", "dry_run"],
    about: "Computes some keys again, as of the watermark. Name the versions that changed them, or the keys.",
  },
  reload: {
    fields: ["ending_version", "dry_run"],
    about: "Compares all keys with the source, and writes the rows that differ. A history keeps its closed rows.",
  },
};
/** The text of a button: the name of its mode. An unchanged form starts a run like those of the schedule. */
const buttonText = (mode, form) => (mode === "incremental" ? "Run" : `${form.modes[mode]}\u2026`);

/** The values of the form as Airflow gets them, without empty ones. */
const filled = (values, fields) =>
  Object.fromEntries(
    Object.entries(values)
      .filter(([, value]) => value !== "" && value !== false && value !== undefined)
      .map(([name, value]) => [name, fields[name].type === "integer" ? Number(value) : value]),
  );

/** Why the values make no sense, whatever has happened since the last look; undefined if they may. */
const refused = (mode, given, item) => {
  const { starting_version: first, ending_version: last, versions_per_commit: each } = given;
  for (const [name, value] of Object.entries(given)) {
    const { label, type, minimum } = item.form.fields[name];
    if (type === "integer" && (!Number.isInteger(value) || value < minimum)) return `${label} must be a whole number, ${minimum} or more.`;
  }
  if (first !== undefined && last !== undefined && first > last) return `The first version ${first} lies after the last one, ${last}.`;
  if (mode === "backfill" && last <= item.version) return `Everything up to version ${item.version} is applied already. A repair computes applied versions again.`;
  if (mode === "repair") {
    const keys = [given.repair_keys, given.repair_quarantined].filter((one) => one !== undefined).length;
    // Beside keys, the first version says from where their history is computed again.
    const ways = keys + (last !== undefined || (first !== undefined && keys === 0) ? 1 : 0);
    if (ways === 0) return "Name versions, or keys.";
    if (ways > 1) return "Name either versions or keys: each says which keys are computed again.";
    if (last !== undefined && first === undefined) return "Name the first version, too.";
  }
  return each !== undefined && mode !== "backfill" ? `Only the mode ${item.form.modes.backfill} has several commits.` : undefined;
};

/** What to think of before sending: the figures are those of the last run, and source and target may have grown since. */
const doubts = (mode, given, item, dag, conf) => {
  const { starting_version: first, ending_version: last } = given;
  const then = clock(item.as_of);
  const highest = Math.max(first ?? 0, last ?? 0);
  const found = [];
  if (highest > item.source_version) found.push(`Version ${highest} is not known: the newest one was ${item.source_version} at ${then}. The run looks again.`);
  if (mode === "backfill" && first > item.version + 1) found.push(`A run in this mode goes on from the watermark, which was ${item.version} at ${then}: the first version would be ${item.version + 1} or lower.`);
  if (mode === "repair" && highest > item.version) found.push(`A repair ends at the watermark, which was ${item.version} at ${then}.`);
  if (!conf.tables && dag.pipelines.length > 1) found.push(`This DAG\u2019s form has no choice of tables: all its pipelines take part: ${dag.pipelines.join(", ")}.`);
  if (dag.is_paused) found.push(`${dag.dag_id} is paused: the run waits until it is not.`);
  return found;
};

/** What a run over a range would do, as far as it is known: versions, bytes, commits. */
const preview = (given, item) => {
  const newest = given.ending_version ?? item.source_version;
  if (newest === undefined) return "The newest version of the source is not known here.";
  if (item.version === undefined) return `No target yet: a load, then the versions up to ${newest}.`;
  const count = Math.max(0, newest - item.version);
  const all = newest === item.source_version && item.lag_bytes !== undefined ? `, ${bytes(item.lag_bytes)}` : "";
  const commits = given.versions_per_commit ? Math.ceil(count / given.versions_per_commit) : Math.min(1, count);
  return `${plural(count, "version")}${all}, ${plural(commits, "commit")}: versions ${item.version + 1}\u2013${newest}`;
};

/** The DAG that an action starts: a group has one of its own for backfills. */
const dagFor = (mode, item) => {
  const able = item.dags.filter(({ form }) => mode in { incremental: 1 } || "mode" in form);
  const own = able.find(({ form }) => form.mode === "backfill");
  return (mode === "backfill" && own) || able.find(({ dag_id }) => dag_id === item.dag_id) || able[0];
};

/** Start a run by Airflow's REST API, on behalf of the user. */
const started = async (dag_id, conf) => {
  const answer = await fetch(address(`api/v2/dags/${encodeURIComponent(dag_id)}/dagRuns`), {
    body: JSON.stringify({ conf, logical_date: null }),
    credentials: "same-origin",
    headers: { "Content-Type": "application/json" },
    method: "POST",
  });
  if (!answer.ok) throw await problem(answer);
  return { dag_id, run_id: (await answer.json()).dag_run_id };
};

const Actions = ({ item, onSent }) => {
  const [mode, setMode] = useState(null);
  const [values, setValues] = useState({});
  const [sent, setSent] = useState(null);
  const dag = mode ? dagFor(mode, item) : null;
  const given = filled(values, item.form.fields);
  const why = mode ? refused(mode, given, item) : undefined;
  const conf =
    dag && "mode" in dag.form ? { mode, ...given, ...("tables" in dag.form ? { tables: [item.pipeline] } : {}) } : {};
  const open = (next) => {
    setMode(mode === next ? null : next);
    setValues({});
    setSent(null);
  };
  const send = async () => {
    setSent({ isUnderway: true });
    try {
      setSent({ run: await started(dag.dag_id, conf) });
      onSent();
    } catch (error) {
      setSent({ error });
    }
  };
  // Without permission to start a run, there is nothing to press; a DAG without a form shows what it lacks.
  const offered = Object.entries(ACTIONS).filter(([name]) => dagFor(name, item)?.may_run !== false);
  if (!item.dags.some(({ may_run }) => may_run)) return null;
  return h(
    Box,
    null,
    h(
      Flex,
      { gap: 2, wrap: "wrap" },
      offered.map(([name, { about }]) => {
        const isOff = !dagFor(name, item);
        return h(
          Button,
          { "data-testid": `delta-cdc-${name}`, disabled: isOff, key: name, onClick: () => open(name), size: "sm", title: isOff ? "The DAG has no form for this: params=run_params()" : about, variant: mode === name ? "solid" : "outline" },
          buttonText(name, item.form),
        );
      }),
    ),
    mode
      ? h(
          Box,
          { borderRadius: "md", borderWidth: 1, mt: 3, p: 4 },
          h(Text, { mb: 3 }, ACTIONS[mode].about),
          h(
            Flex,
            { align: "flex-end", gap: 3, mb: 3, wrap: "wrap" },
            ACTIONS[mode].fields.filter((name) => name in dag.form).map((name) => {
              const { label, type } = item.form.fields[name];
              const isNumber = type === "integer";
              const hints = {
                ending_version: item.source_version,
                starting_version: item.version === undefined ? undefined : mode === "repair" ? item.version : item.version + 1,
              };
              const control = type === "boolean"
                ? h("input", { checked: Boolean(values[name]), name, onChange: (event) => setValues({ ...values, [name]: event.target.checked }), type: "checkbox" })
                : h(Input, { name, onChange: (event) => setValues({ ...values, [name]: event.target.value }), placeholder: hints[name] === undefined ? "" : String(hints[name]), size: "sm", type: isNumber ? "number" : "text", value: values[name] ?? "", w: isNumber ? "150px" : "280px" });
              return h(Box, { as: "label", key: name }, h(Muted, null, label), control);
            }),
          ),
          mode === "backfill" && !why ? h(Text, { "data-testid": "delta-cdc-preview", mb: 3 }, preview(given, item)) : null,
          why ? h(Text, { color: "fg.error", "data-testid": "delta-cdc-refused", mb: 3, role: "alert" }, why) : null,
          doubts(mode, given, item, dag, conf).map((doubt) => h(Text, { color: "fg.warning", "data-testid": "delta-cdc-doubt", key: doubt, mb: 3 }, doubt)),
          h(Muted, { style: { fontFamily: "monospace", marginBottom: 12 } }, `POST api/v2/dags/${dag.dag_id}/dagRuns ${JSON.stringify({ conf })}`),
          h(
            Flex,
            { align: "center", gap: 3 },
            h(Button, { colorPalette: "brand", "data-testid": "delta-cdc-send", disabled: Boolean(why) || sent?.isUnderway || Boolean(sent?.run), onClick: send, size: "sm" }, `Start ${dag.dag_id}`),
            sent?.run ? h(To, { to: runPath(sent.run) }, `Started: ${sent.run.run_id}`) : null,
            sent?.error ? h(Text, { color: "fg.error", role: "alert" }, `Airflow did not start it: ${sent.error.message}`) : null,
          ),
        )
      : null,
  );
};

// -- why is this row so --------------------------------------------------------------------------------------
const EVERY_MS_OF_A_RUN = 2_000;
const WHY_HINT = "No DAG explains the rows of this pipeline. In a configuration file, give its group the key why: true. In a DAG of your own, use DeltaWhyOperator with params=why_params().";

const fetched = async (path) => {
  const answer = await fetch(address(path), { credentials: "same-origin" });
  if (!answer.ok) throw await problem(answer);
  return answer.json();
};

/** The answer of a run that explains a row, from Airflow's REST API, with the rights of the user. */
const useExplained = (dag, run) => {
  const [found, setFound] = useState({});
  useEffect(() => {
    setFound({});
    if (!run) return undefined;
    let isCurrent = true;
    let timer;
    const ofRun = `api/v2/dags/${encodeURIComponent(dag.dag_id)}/dagRuns/${encodeURIComponent(run)}`;
    const xcom = async (key) => {
      const { value } = await fetched(`${ofRun}/taskInstances/${encodeURIComponent(dag.task_id)}/xcomEntries/${key}`);
      // Airflow returns what its database holds: the JSON text of the value.
      return typeof value === "string" ? JSON.parse(value) : value;
    };
    const ask = async () => {
      try {
        const { state } = await fetched(ofRun);
        const next = { state };
        if (state === "success") next.answer = await xcom("return_value");
        if (state === "failed") next.failure = await xcom("delta_cdc_error").catch(() => null);
        if (isCurrent) setFound(next);
        if (isCurrent && state !== "success" && state !== "failed") timer = setTimeout(ask, EVERY_MS_OF_A_RUN);
      } catch (error) {
        if (isCurrent) setFound((last) => ({ ...last, error }));
      }
    };
    ask();
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [dag.dag_id, dag.task_id, run]);
  return found;
};

/** The run of Airflow that an id of work names: DAG, run and, outside groups, task. */
const runOfWork = (id) => {
  const [dag_id, run_id] = (id ?? "").split("/");
  return run_id ? { dag_id, run_id } : null;
};

/** A value, which is JSON: a text without its quotes. */
const shownValue = (value) => {
  if (value === null || value === undefined) return h("em", null, "NULL");
  try {
    const parsed = JSON.parse(value);
    return typeof parsed === "string" ? parsed || h("em", null, "empty text") : value;
  } catch {
    return value;
  }
};

const placeText = ({ record, version, time, sequence }) => {
  const parts = Object.entries(record ?? {}).filter(([, value]) => value !== null).map(([name, value]) => `${name} ${value}`);
  if (version !== null && version !== undefined) parts.push(`version ${version} of the source`);
  else if (parts.length === 0 && sequence) parts.push(`sequence ${sequence}`);
  return `${parts.join(", ") || "unknown"}${time ? `, ${clock(time)}` : ""}`;
};

const Applied = ({ where }) => {
  if (!where || where.target_version === null || where.target_version === undefined) return "\u2013";
  const run = runOfWork(where.run_id);
  return [
    `version ${where.target_version}${where.applied_at ? `, ${clock(where.applied_at)}` : ""} (${where.work}) `,
    run ? h(To, { key: "run", to: runPath(run) }, run.run_id) : where.run_id,
  ];
};

const rowTitle = ({ start, end, deleted, opened, closed }) => {
  const by = (where) => (where ? ` (${placeText(where)})` : "");
  if (start !== null && start !== undefined) return `From ${start}${by(opened)} to ${end ? `${end}${by(closed)}` : "now"}`;
  return deleted ? `Deleted${by(closed)}` : null;
};

const Explained = ({ answer }) => {
  const key = Object.entries(answer.key).map(([name, value]) => `${name} = ${value}`).join(", ");
  const left = answer.left_out ?? [];
  return h(
    Flex,
    { "data-testid": "delta-cdc-answer", direction: "column", gap: 3, mt: 3 },
    h(
      Box,
      null,
      h("div", { className: "delta-cdc-name" }, `${answer.pipeline}: ${key}`),
      h(Muted, null, `Version ${answer.version} of ${answer.target}, from version ${answer.watermark} of ${answer.source}`),
    ),
    answer.rows.length === 0 && !left.some((one) => one.endsWith(" rows"))
      ? h(Text, null, `The target has no row of this key${answer.gone ? `: the last one ended with ${placeText(answer.gone)}` : ""}.`)
      : null,
    answer.rows.map((row, at) =>
      h(
        Box,
        { key: at },
        rowTitle(row) ? h("div", { className: "delta-cdc-name" }, rowTitle(row)) : null,
        h(
          Table,
          { columns: ["Column", "Value", "Since", "Reached the target with"] },
          row.values.map(({ column, value, since, note }) =>
            h(
              "tr",
              { key: column },
              h("td", { className: "nowrap delta-cdc-name" }, column),
              h("td", { className: "text" }, shownValue(value)),
              h("td", { title: since?.time }, since ? placeText(since) : note),
              h("td", null, h(Applied, { where: since })),
            ),
          ),
        ),
      ),
    ),
    answer.not_taken?.length
      ? h(
          Box,
          null,
          h("div", { className: "delta-cdc-name" }, "Not taken"),
          h(
            Table,
            { columns: ["Why", "Change", "Values"] },
            answer.not_taken.map(({ why, where, values }, at) =>
              h(
                "tr",
                { key: at },
                h("td", null, why),
                h("td", null, placeText(where)),
                h("td", { className: "text" }, Object.entries(values).map(([name, value], place) => h("div", { key: place }, `${name} = `, shownValue(value)))),
              ),
            ),
          ),
        )
      : null,
    [...(answer.notes ?? []), ...(left.length ? [`Not shown here, because it is too long: ${left.join(", ")}. The log of the task has it.`] : [])].map((note) => h(Text, { fontSize: "sm", key: note }, `Note: ${local(note)}`)),
    answer.upstream ? h(Box, { borderLeftWidth: 3, pl: 4 }, h("div", { className: "delta-cdc-name" }, "Where the source has it from"), h(Explained, { answer: answer.upstream })) : null,
  );
};

const WHY_FIELDS = [
  { name: "key", label: "Key", hint: "id=17", width: "220px" },
  { name: "columns", label: "Column (empty: all)", hint: "", width: "180px" },
  { name: "at", label: "As of version or time (empty: now)", hint: "41", width: "260px" },
];

const Why = ({ item }) => {
  const dag = item.why;
  const [isOpen, setIsOpen] = useState(false);
  const [values, setValues] = useState({});
  const [sent, setSent] = useState(null);
  const { state, answer, failure, error } = useExplained(dag ?? {}, sent?.run?.run_id);
  // Without permission to start its runs, there is nothing to press.
  if (dag ? !dag.may_run : !item.dags.some(({ may_run }) => may_run)) return null;
  const given = Object.fromEntries(Object.entries(values).filter(([, value]) => value.trim()));
  const offered = WHY_FIELDS.filter(({ name }) => dag?.fields.includes(name));
  const conf = { ...given, ...(given.columns ? { columns: [given.columns.trim()] } : {}), ...(dag?.fields.includes("pipeline") ? { pipeline: item.pipeline } : {}) };
  const send = async () => {
    setSent({ isUnderway: true });
    try {
      setSent({ run: await started(dag.dag_id, conf) });
    } catch (refusal) {
      setSent({ error: refusal });
    }
  };
  const isAtWork = sent?.isUnderway || (sent?.run && state !== "success" && state !== "failed" && !error);
  return h(
    Box,
    null,
    h(Button, { "data-testid": "delta-cdc-why", disabled: !dag, onClick: () => setIsOpen(!isOpen), size: "sm", title: dag ? "Shows which change set each value of a row, and which run applied it." : WHY_HINT, variant: isOpen ? "solid" : "outline" }, "Why is this row so\u2026"),
    dag ? null : h(Muted, { "data-testid": "delta-cdc-why-hint", style: { marginTop: 4 } }, WHY_HINT),
    isOpen
      ? h(
          Box,
          { borderRadius: "md", borderWidth: 1, mt: 3, p: 4 },
          h(Text, { mb: 3 }, "Shows for each value of one row the change that set it, and the run that applied that. It starts Spark, reads the source, and writes nothing."),
          h(
            Flex,
            { align: "flex-end", gap: 3, mb: 3, wrap: "wrap" },
            offered.map(({ name, label, hint, width }) =>
              h(Box, { as: "label", key: name }, h(Muted, null, label), h(Input, { name: `why_${name}`, onChange: (event) => setValues({ ...values, [name]: event.target.value }), placeholder: hint, size: "sm", value: values[name] ?? "", w: width })),
            ),
          ),
          dag.is_paused ? h(Text, { color: "fg.warning", mb: 3 }, `${dag.dag_id} is paused: the run waits until it is not.`) : null,
          h(Muted, { style: { fontFamily: "monospace", marginBottom: 12 } }, `POST api/v2/dags/${dag.dag_id}/dagRuns ${JSON.stringify({ conf })}`),
          h(
            Flex,
            { align: "center", gap: 3, wrap: "wrap" },
            h(Button, { colorPalette: "brand", "data-testid": "delta-cdc-why-send", disabled: !given.key || Boolean(isAtWork), onClick: send, size: "sm" }, `Start ${dag.dag_id}`),
            sent?.run ? h(To, { to: runPath(sent.run) }, `Started: ${sent.run.run_id}`) : null,
            isAtWork ? h(Flex, { align: "center", gap: 2 }, h(Spinner, { "aria-label": "Running", size: "sm" }), state ?? "queued") : null,
            sent?.error ? h(Text, { color: "fg.error", role: "alert" }, `Airflow did not start it: ${sent.error.message}`) : null,
          ),
          error ? h(Text, { color: "fg.error", mt: 3, role: "alert" }, `The answer cannot be shown: ${error.message}. It is in the log of the run.`) : null,
          state === "failed"
            ? h(Box, { mt: 3 }, h(Finding, { finding: { level: "error", remedy: failure?.remedy ?? "read the log of the run.", text: failure ? `${failure.class}: ${failure.message}` : "The run failed." } }))
            : null,
          answer ? h(Explained, { answer }) : null,
        )
      : null,
  );
};

// -- one pipeline --------------------------------------------------------------------------------------------
const Fact = ({ label, children, note, title }) =>
  h(
    Box,
    { borderRadius: "md", borderWidth: 1, flex: "1 1 150px", p: 3, title },
    h(Muted, null, label),
    h(Text, { as: "div", fontSize: "lg", fontWeight: "semibold" }, children),
    note ? h(Muted, null, note) : null,
  );

const Commits = ({ commits, empty }) => {
  if (commits.length === 0) return h(Muted, null, empty);
  const columns = ["When", "Versions of the source", "Inserted", "Updated", "Deleted", "Closed", "Quarantined", "Version of the target", "Took", "Run", "Log"];
  return h(
    Table,
    { columns, "data-testid": "delta-cdc-commits" },
    commits.map((commit, at) =>
      h(
        "tr",
        { key: at },
        h("td", { className: "nowrap" }, h(Moment, { iso: commit.as_of })),
        h("td", null, commit.starting_version === undefined ? "\u2013" : `${commit.starting_version}\u2013${commit.ending_version}`),
        ROWS.map(({ name }) => h("td", { key: name }, number(commit.rows?.[name]))),
        h("td", { className: commit.quarantined ? "warning" : undefined }, number(commit.quarantined)),
        h("td", null, number(commit.target_version)),
        h("td", { className: "nowrap" }, duration(took(commit))),
        h("td", null, commit.run_id ? h(To, { to: runPath(commit) }, commit.run_id) : "\u2013"),
        h("td", null, commit.has_log ? h(To, { to: taskPath(commit) }, "Log") : "\u2013"),
      ),
    ),
  );
};

const took = (commit) =>
  commit.seconds ? Object.values(commit.seconds).reduce((sum, one) => sum + one, 0) : (commit.task_seconds ?? undefined);

const Runs = ({ runs }) =>
  h(
    Table,
    { columns: ["Started", "State", "Took", "Behind after it", "Run", "Error"] },
    runs.map((run) =>
      h(
        "tr",
        { key: `${run.dag_id} ${run.run_id}` },
        h("td", { className: "nowrap" }, h(Moment, { iso: run.started })),
        h("td", { className: "nowrap" }, h(RunState, run)),
        h("td", { className: "nowrap" }, duration(run.seconds)),
        h("td", { className: "nowrap" }, run.figures.lag_versions === undefined ? "\u2013" : plural(run.figures.lag_versions, "version")),
        h("td", null, h(To, { to: run.task_id ? taskPath(run) : runPath(run) }, run.run_id)),
        h("td", { className: "text" }, local(run.failure?.text ?? "")),
      ),
    ),
  );

const STAGES = { plan: "planning", start: "start of Spark", work: "work", confirm: "confirming" };
const DURATIONS = ["blue", "amber", "teal", "violet", "rose", "gray"];

const Pipeline = ({ name }) => {
  const { data: item, error, again } = useAnswer("pipeline", { name });
  if (!item) return error ? h(Trouble, { error }) : h(Waiting);
  return item.pipelines ? h(Box, null, h(Hidden, { names: item.hidden }), h(Pipelines, { items: item.pipelines })) : h(One, { again, error, item });
};

const One = ({ again, error, item }) => {
  const commits = [...item.commits].reverse();
  const seen = [...item.runs]
    .reverse()
    .map((run) => run.figures)
    .filter((figures) => figures.lag_versions !== undefined);
  const stages = [...new Set(commits.flatMap(({ seconds }) => Object.keys(seconds ?? {})))];
  const durations = stages.length
    ? stages.map((stage, at) => ({ name: STAGES[stage] ?? stage, palette: DURATIONS[at % DURATIONS.length], value: (commit) => (commit.seconds ? (commit.seconds[stage] ?? 0) : at === 0 ? (commit.task_seconds ?? undefined) : undefined) }))
    : [{ name: "seconds", palette: "blue", value: (commit) => commit.task_seconds }];
  const { run } = item;
  const empty = (text) => (item.hidden.length ? "Nothing that you may read." : text);
  return h(
    Flex,
    { direction: "column", gap: 5 },
    h(
      Box,
      null,
      h(To, { to: PAGE }, "\u2190 All pipelines"),
      h(
        Flex,
        { align: "center", gap: 3, mt: 1, wrap: "wrap" },
        h(Heading, { overflowWrap: "anywhere", size: "xl" }, item.pipeline),
        h(State, { state: item.state }),
        item.dags.map(({ dag_id, is_paused }) => h(To, { key: dag_id, to: `/dags/${encodeURIComponent(dag_id)}` }, `${dag_id}${is_paused ? " (paused)" : ""}`)),
      ),
      h(Muted, { style: { fontFamily: "monospace" } }, `${item.source ?? "?"} \u2192 ${item.target ?? "?"}`),
    ),
    error ? h(Trouble, { error }) : null,
    h(Hidden, { names: item.hidden }),
    item.findings.length
      ? h(Flex, { "data-testid": "delta-cdc-findings", direction: "column", gap: 2 }, item.findings.map((finding, at) => h(Finding, { finding, key: at }, finding.level === "error" && run ? h(RunLinks, { run }) : null)))
      : null,
    h(
      Flex,
      { gap: 3, wrap: "wrap" },
      h(Fact, { label: "Behind", note: item.behind_since ? `oldest change: ${clock(item.behind_since)}` : item.lag_versions ? "without changes of rows" : undefined }, lag(item)),
      h(Fact, { label: "Watermark", note: item.source_version === undefined ? "newest of the source: unknown" : `newest of the source${item.lag_versions === undefined ? " at the last look" : ""}: ${number(item.source_version)}` }, number(item.version)),
      h(Fact, { label: "Last run", note: run?.seconds ? `took ${duration(run.seconds)}` : undefined, title: run?.started }, run ? h(To, { to: run.task_id ? taskPath(run) : runPath(run) }, `${outcome(run)}, ${run.started ? ago(run.started) : "queued"}`) : "\u2013"),
      h(Fact, { label: "Rows of the last run" }, h(Moved, { rows: item.rows })),
      h(Fact, { label: "Quarantined by it" }, number(item.quarantined)),
      item.held_rows === undefined ? null : h(Fact, { label: "In quarantine" }, number(item.held_rows)),
      item.rules && Object.keys(item.rules).length
        ? h(Fact, { label: "Rules broken by its rows" }, Object.entries(item.rules).map(([name, rows]) => h(Text, { as: "div", color: "fg.warning", fontSize: "sm", key: name }, `${name}: ${number(rows)}`)))
        : null,
      h(Fact, { label: "Readable until", note: deadlineNote(item) }, h(Deadline, { item })),
      h(Fact, { label: "Figures as of", note: item.as_of ? ago(item.as_of) : undefined }, h(Moment, { iso: item.as_of })),
    ),
    h(Actions, { item, onSent: again }),
    h(Why, { item }),
    h(
      Box,
      { display: "grid", gap: 4, gridTemplateColumns: "repeat(auto-fit, minmax(min(100%, 520px), 1fr))" },
      h(Plot, { empty: empty("No run has published how far behind it was."), points: seen, series: [{ name: "versions", palette: "orange", value: (figures) => figures.lag_versions }], title: "Versions behind after each run" }),
      h(Plot, { empty: empty("No commit yet."), points: commits, series: ROWS.map(({ name: rows, color: palette }) => ({ name: rows, palette, value: (commit) => commit.rows?.[rows] })), title: "Rows per commit" }),
      h(Plot, { empty: empty("No commit has published how long it took."), points: commits, series: durations, title: "How long each commit took", unit: duration }),
      h(Plot, { empty: empty("No commit yet."), points: commits, series: [{ name: "rows", palette: "rose", value: (commit) => commit.quarantined }], title: "Rows into quarantine" }),
    ),
    h(Box, null, h(Heading, { mb: 2, size: "md" }, "Commits"), h(Commits, { commits: item.commits, empty: empty("No commit is recorded yet.") })),
    item.runs.length ? h(Box, null, h(Heading, { mb: 2, size: "md" }, "Runs"), h(Runs, { runs: item.runs })) : null,
  );
};

// -- tabs ----------------------------------------------------------------------------------------------------
const OfDag = ({ dagId }) => {
  const { data, error } = useAnswer("pipelines", { dag_id: dagId });
  if (!data) return error ? h(Trouble, { error }) : h(Waiting);
  if (data.pipelines.length === 0) return h(Muted, null, "This DAG has no pipeline of Delta CDC.");
  return h(Box, null, h(Hidden, { names: data.hidden }), h(Pipelines, { items: data.pipelines, withGroup: false }));
};

const OfTask = ({ dagId, runId, taskId, mapIndex }) => {
  const { data, error } = useAnswer("task", { dag_id: dagId, map_index: mapIndex ?? -1, run_id: runId, task_id: taskId });
  if (!data) return error ? h(Trouble, { error }) : h(Waiting);
  if (data.pipelines.length === 0) {
    return h(Box, null, h(Hidden, { names: data.hidden }), h(Muted, null, "This page has nothing about this task and a pipeline of Delta CDC."));
  }
  return h(
    Flex,
    { "data-testid": "delta-cdc-task", direction: "column", gap: 4 },
    h(Hidden, { names: data.hidden }),
    data.pipelines.map(({ id, pipeline, state, is_dry_run, failure, figures }) =>
      h(
        Box,
        { borderRadius: "md", borderWidth: 1, key: id, p: 4 },
        h(Flex, { align: "center", gap: 3, mb: 2 }, h(RunState, { is_dry_run, state }), h(To, { isName: true, to: pipelinePath({ id }) }, pipeline)),
        failure ? h(Finding, { finding: failure }) : null,
        h(
          Flex,
          { gap: 6, mt: 2, wrap: "wrap" },
          figures.starting_version === undefined ? null : h(Text, null, `Versions ${figures.starting_version}\u2013${figures.ending_version}`),
          figures.version === undefined ? null : h(Text, null, `Watermark ${figures.version}${figures.source_version === undefined ? "" : ` of ${figures.source_version}`}`),
          figures.lag_versions === undefined ? null : h(Text, null, `Behind: ${lag(figures)}`),
          figures.rows ? h(Flex, { gap: 2 }, h(Text, null, "Rows:"), h(Moved, { rows: figures.rows })) : null,
          figures.quarantined ? h(Text, { color: "fg.warning" }, `Quarantined: ${number(figures.quarantined)}`) : null,
        ),
      ),
    ),
  );
};

// -- the component -------------------------------------------------------------------------------------------
const Place = (place) => h(React.Fragment, null, h("style", null, CSS), h(Part, place));

const Part = ({ dagId, mapIndex, runId, taskId }) => {
  const { search } = useLocation();
  if (taskId) return h(Box, { p: 4 }, h(OfTask, { dagId, mapIndex, runId, taskId }));
  if (dagId) return h(Box, { p: 4 }, h(OfDag, { dagId }));
  const name = new URLSearchParams(search).get("pipeline");
  return h(Box, { h: "100%", overflow: "auto", p: 5 }, name === null ? h(Overview) : h(Pipeline, { key: name, name }));
};

// Airflow looks the component up by the name of the plugin's entry.
globalThis["Delta CDC"] = Place;
globalThis.AirflowPlugin = Place;
export default Place;
