//! A job as a YAML or JSON file: the fields of the original DRIGS with their aliases, and what was added since.

use std::collections::BTreeMap;

use crate::cli::spec::{
    Draft, Fault, Place, nearest,
    node::{self, Node, Value},
    value,
};

/// One key of a table: its name, the field it says (aliases say the same one), and what it does to the draft.
type Key = (&'static str, &'static str, fn(&mut Draft, &Node) -> Result<(), Fault>);

/// Reads a spec file's text. `file` is what its faults call it.
///
/// # Errors
/// Names line and column of the first mistake; for an unknown key, the nearest known one.
pub fn read_file(file: &str, text: &str) -> Result<Draft, Fault> {
    let root = node::parse(file, text)?;
    let mut draft = Draft::default();
    if matches!(root.value, Value::Null) {
        return Err(Place::new(file).fault("is empty; a job needs at least `execution.entrypoint`"));
    }
    root.read_into(&mut draft, JOB)?;
    draft.places.entry("command").or_insert_with(|| Place::new(file));
    Ok(draft)
}

const JOB: &[Key] = &[
    ("name", "name", |draft, it| set(&mut draft.name, it.text())),
    ("queue", "queue", |draft, it| set(&mut draft.queue, it.text())),
    ("priority", "priority", |draft, it| set(&mut draft.priority, it.parse(value::priority))),
    ("resources", "resources", |draft, it| it.read_into(draft, RESOURCES)),
    ("execution", "execution", |draft, it| it.read_into(draft, EXECUTION)),
    ("distribution", "distribution", |draft, it| it.read_into(draft, DISTRIBUTION)),
    ("runtime", "runtime", |draft, it| it.read_into(draft, RUNTIME)),
    ("checkpoint", "checkpoint", |draft, it| it.read_into(draft, CHECKPOINT)),
    ("nodes", "nodes", |draft, it| set(&mut draft.nodes, it.parse(value::nodes))),
    ("gpus_per_node", "gpus_per_node", |draft, it| {
        set(&mut draft.gpus_per_node, it.parse(value::count))
    }),
    ("gpu", "gpu", gpu),
    ("gpu_sharing", "gpu_sharing", |draft, it| set(&mut draft.gpu_sharing, it.boolean())),
    ("labels", "labels", |draft, it| {
        draft.labels = it.pairs()?;
        Ok(())
    }),
    ("time_limit", "time_limit", |draft, it| {
        set(&mut draft.time_limit, it.parse(value::time_limit))
    }),
    ("retry", "retry", retry),
    ("stop", "stop", |draft, it| it.read_into(draft, STOP)),
    ("array", "array", |draft, it| set(&mut draft.array, it.parse(value::array))),
    ("depends_on", "depends_on", depends_on),
    ("begin", "begin", |draft, it| set(&mut draft.begin, it.parse(value::begin))),
    ("hold", "hold", |draft, it| set(&mut draft.held, it.boolean())),
    ("on_disconnect", "lost_after", |draft, it| {
        set(&mut draft.lost_after, it.parse(value::on_disconnect))
    }),
    ("lost_after", "lost_after", |draft, it| {
        set(&mut draft.lost_after, it.parse(value::lost_after))
    }),
];

const RESOURCES: &[Key] = &[
    ("gpus", "gpus", |draft, it| set(&mut draft.gpus, it.parse(value::count))),
    ("gpu", "gpu", gpu),
    ("gpus_per_node", "gpus_per_node", |draft, it| {
        set(&mut draft.gpus_per_node, it.parse(value::count))
    }),
    ("gpu_memory", "gpu_memory", |draft, it| {
        set(&mut draft.gpu_memory, it.parse(value::memory_in_file))
    }),
    ("gpu_memory_bytes", "gpu_memory", |draft, it| {
        set(&mut draft.gpu_memory, it.parse(value::memory_in_file))
    }),
    ("gpu_sharing", "gpu_sharing", |draft, it| set(&mut draft.gpu_sharing, it.boolean())),
    ("cpus", "cpus", |draft, it| set(&mut draft.cpus, it.parse(value::cpus))),
    ("memory", "memory", |draft, it| set(&mut draft.memory, it.parse(value::memory_in_file))),
    ("memory_bytes", "memory", |draft, it| set(&mut draft.memory, it.parse(value::memory_in_file))),
    ("topology_aware", "topology_aware", |draft, it| set(&mut draft.topology_aware, it.boolean())),
    ("min_compute_capability", "min_compute_capability", |draft, it| {
        set(&mut draft.min_compute_capability, it.parse(value::compute_capability))
    }),
];

const EXECUTION: &[Key] = &[
    ("backend", "container", |draft, it| set(&mut draft.backend, it.parse(value::backend))),
    ("entrypoint", "command", entrypoint),
    ("args", "args", |draft, it| set(&mut draft.args, it.texts())),
    ("env", "env", |draft, it| {
        draft.env = it.pairs()?;
        Ok(())
    }),
    ("working_dir", "working_dir", |draft, it| set(&mut draft.working_dir, it.text())),
];

const DISTRIBUTION: &[Key] = &[
    ("mode", "mode", |draft, it| set(&mut draft.distribution.mode, it.text())),
    ("world_size", "world_size", |draft, it| {
        set(&mut draft.distribution.world_size, it.parse(world_size))
    }),
    ("master_addr", "master_addr", |draft, it| set(&mut draft.distribution.master_addr, it.text())),
    ("master_port", "master_port", |draft, it| {
        set(&mut draft.distribution.master_port, it.parse(port))
    }),
];

const RUNTIME: &[Key] = &[
    ("container", "container", container),
    ("container_image", "container", |draft, it| set(&mut draft.image, it.text())),
    ("volumes", "volumes", |draft, it| {
        draft.volumes = it.pairs()?;
        Ok(())
    }),
];

const CONTAINER: &[Key] = &[("image", "image", |draft, it| set(&mut draft.image, it.text()))];

const CHECKPOINT: &[Key] = &[
    ("enabled", "enabled", |draft, it| set(&mut draft.checkpoint.enabled, it.boolean())),
    ("interval", "checkpoint", |draft, it| {
        set(&mut draft.checkpoint.interval, it.parse(value::seconds))
    }),
    ("interval_seconds", "checkpoint", |draft, it| {
        set(&mut draft.checkpoint.interval, it.parse(value::seconds))
    }),
    ("checkpoint_dir", "checkpoint_dir", |draft, it| set(&mut draft.checkpoint.dir, it.text())),
];

const RETRY: &[Key] = &[
    ("max", "retry", |draft, it| set(&mut draft.retry_max, it.parse(value::count))),
    ("on", "retry_on", |draft, it| {
        let causes: Result<_, Fault> = match &it.value {
            Value::List(items) => items.iter().map(|item| item.parse(value::retry_cause)).collect(),
            _ => it.parse(value::retry_causes),
        };
        set(&mut draft.retry_on, causes)
    }),
];

const STOP: &[Key] = &[
    ("signal", "signal", |draft, it| set(&mut draft.signal, it.parse(value::signal))),
    ("grace", "grace", |draft, it| set(&mut draft.grace, it.parse(value::seconds))),
];

fn gpu(draft: &mut Draft, node: &Node) -> Result<(), Fault> {
    let gpus = node.parse(value::gpus)?;
    draft.gpus = gpus.count.or(draft.gpus);
    draft.gpu_memory = gpus.memory.or(draft.gpu_memory);
    draft.gpu_model = gpus.model.or(draft.gpu_model.take());
    Ok(())
}

/// `retry: 3` is short for `retry: {max: 3}`.
fn retry(draft: &mut Draft, node: &Node) -> Result<(), Fault> {
    match node.value {
        Value::Table(_) => node.read_into(draft, RETRY),
        _ => set(&mut draft.retry_max, node.parse(value::count)),
    }
}

/// An image's name, or the original's `{image: …}`.
fn container(draft: &mut Draft, node: &Node) -> Result<(), Fault> {
    match node.value {
        Value::Table(_) => node.read_into(draft, CONTAINER),
        _ => set(&mut draft.image, node.text()),
    }
}

/// A list of words, or a text that is split as a shell would, though no shell runs it.
fn entrypoint(draft: &mut Draft, node: &Node) -> Result<(), Fault> {
    let words = match &node.value {
        Value::List(_) => node.texts()?,
        _ => shlex::split(&node.text()?)
            .ok_or_else(|| node.place.fault("a quotation mark is never closed"))?,
    };
    draft.command = Some(words);
    Ok(())
}

/// `afterok:12,afterany:13`, `12`, or a list of such.
fn depends_on(draft: &mut Draft, node: &Node) -> Result<(), Fault> {
    let texts = match &node.value {
        Value::List(items) => items.iter().collect(),
        _ => vec![node],
    };
    let mut all = Vec::new();
    for text in texts {
        all.extend(text.parse(value::dependencies)?);
    }
    draft.dependencies = Some(all);
    Ok(())
}

fn world_size(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(size) if (1..=65_536).contains(&size) => Ok(size),
        _ => Err(format!("`{text}` is not a world size (1 to 65536)")),
    }
}

fn port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(format!("`{text}` is not a port (1 to 65535)")),
    }
}

fn set<T>(field: &mut Option<T>, value: Result<T, Fault>) -> Result<(), Fault> {
    *field = Some(value?);
    Ok(())
}

impl Node {
    /// Reads a table of known keys. A key without a value says nothing.
    fn read_into(&self, draft: &mut Draft, keys: &[Key]) -> Result<(), Fault> {
        let Value::Table(entries) = &self.value else { return Err(self.wrong("a table of keys")) };
        let mut said: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, place, node) in entries {
            let known = keys.iter().find(|(key, ..)| key == name);
            let Some((key, field, apply)) = known else { return Err(unknown(name, place, keys)) };
            if matches!(node.value, Value::Null) {
                continue;
            }
            if let Some(other) = said.insert(field, key) {
                return Err(
                    place.fault(format!("`{key}` says again what `{other}` says; keep one"))
                );
            }
            draft.places.insert(field, node.place.clone());
            apply(draft, node)?;
        }
        Ok(())
    }

    fn wrong(&self, expected: &str) -> Fault {
        self.place.fault(format!("{} where {expected} belongs", self.value.kind()))
    }

    /// A single value, as it was written.
    fn text(&self) -> Result<String, Fault> {
        match &self.value {
            Value::Text(text) | Value::Number(text) | Value::Boolean(_, text) => Ok(text.clone()),
            Value::Null | Value::List(_) | Value::Table(_) => Err(self.wrong("a single value")),
        }
    }

    fn parse<T>(&self, parse: fn(&str) -> Result<T, String>) -> Result<T, Fault> {
        parse(&self.text()?).map_err(|message| self.place.fault(message))
    }

    fn boolean(&self) -> Result<bool, Fault> {
        match self.value {
            Value::Boolean(value, _) => Ok(value),
            _ => Err(self.wrong("true or false")),
        }
    }

    fn texts(&self) -> Result<Vec<String>, Fault> {
        match &self.value {
            Value::List(items) => items.iter().map(Node::text).collect(),
            _ => Err(self.wrong("a list")),
        }
    }

    /// A table of the user's own names.
    fn pairs(&self) -> Result<BTreeMap<String, String>, Fault> {
        let Value::Table(entries) = &self.value else {
            return Err(self.wrong("a table of names and values"));
        };
        let pair = |(name, _, node): &(String, Place, Node)| match node.value {
            Value::Null => {
                Err(node.place.fault(format!("`{name}` has no value; write \"\" for an empty one")))
            }
            _ => Ok((name.clone(), node.text()?)),
        };
        entries.iter().map(pair).collect()
    }
}

fn unknown(name: &str, place: &Place, keys: &[Key]) -> Fault {
    let elsewhere = SECTIONS.iter().find(|(_, keys)| keys.iter().any(|(key, ..)| *key == name));
    let known = keys.iter().map(|(key, ..)| *key);
    let advice = match (elsewhere, nearest(name, known.clone())) {
        (Some(("", _)), _) => String::from(" here; it belongs at the top"),
        (Some((section, _)), _) => format!(" here; it belongs under `{section}`"),
        (None, Some(nearest)) => format!("; did you mean `{nearest}`?"),
        (None, None) => format!("; known here: {}", known.collect::<Vec<_>>().join(", ")),
    };
    place.fault(format!("unknown key `{name}`{advice}"))
}

/// To tell where a misplaced key belongs.
const SECTIONS: &[(&str, &[Key])] = &[
    ("", JOB),
    ("resources", RESOURCES),
    ("execution", EXECUTION),
    ("distribution", DISTRIBUTION),
    ("runtime", RUNTIME),
    ("checkpoint", CHECKPOINT),
    ("retry", RETRY),
    ("stop", STOP),
];
