//! Made-up GPUs: `2xT4`, `8xA100-80GB`, `1xH100+2xT4`, or a JSON file that lists models.

use std::{path::Path, str::FromStr};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use uuid::Uuid;

use crate::model::{Bytes, ComputeCapability, Gpu, GpuHealth, GpuUuid};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulated {
    models: Vec<Model>,
}

/// One made-up GPU.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    model: String,
    /// VRAM, such as `16G`.
    #[serde(deserialize_with = "read_bytes")]
    memory: Bytes,
    compute_capability: Option<ComputeCapability>,
}

/// Name, VRAM in GiB, compute capability. From the makers' data sheets.
const KNOWN: &[(&str, u64, (u32, u32))] = &[
    ("P100", 16, (6, 0)),
    ("V100", 16, (7, 0)),
    ("T4", 16, (7, 5)),
    ("RTX2080TI", 11, (7, 5)),
    ("RTX3090", 24, (8, 6)),
    ("A10", 24, (8, 6)),
    ("A40", 48, (8, 6)),
    ("A100", 40, (8, 0)),
    ("RTX4090", 24, (8, 9)),
    ("L4", 24, (8, 9)),
    ("L40S", 48, (8, 9)),
    ("H100", 80, (9, 0)),
    ("H200", 141, (9, 0)),
    ("B200", 180, (10, 0)),
];

const MOST: usize = 64;

impl Simulated {
    pub fn gpus(&self, worker: Uuid) -> Vec<Gpu> {
        (0..)
            .zip(&self.models)
            .map(|(index, model)| Gpu {
                uuid: uuid_of(worker, index),
                index,
                model: model.model.clone(),
                memory: model.memory,
                compute_capability: model.compute_capability,
                health: GpuHealth::Healthy,
            })
            .collect()
    }
}

/// The same at every start of the same worker, and no other's.
fn uuid_of(worker: Uuid, index: u32) -> GpuUuid {
    let hash = blake3::hash(format!("{worker} simulated GPU {index}").as_bytes());
    let bytes: [u8; 16] = hash.as_bytes()[..16].try_into().expect("a hash has 32 bytes");
    GpuUuid::new(format!("GPU-{}", Uuid::from_bytes(bytes)))
}

impl FromStr for Simulated {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let models = match text.ends_with(".json") {
            true => read_file(Path::new(text))?,
            false => parse_groups(text)?,
        };
        ensure!(
            (1..=MOST).contains(&models.len()),
            "{} simulated GPUs are out of range: 1 to {MOST}",
            models.len()
        );
        Ok(Simulated { models })
    }
}

fn read_file(path: &Path) -> anyhow::Result<Vec<Model>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| {
        format!(
            "{} is not a list like [{{\"model\": \"T4\", \"memory\": \"16G\", \"compute_capability\": \"7.5\"}}]",
            path.display()
        )
    })
}

fn parse_groups(text: &str) -> anyhow::Result<Vec<Model>> {
    let mut models = Vec::new();
    for group in text.split('+') {
        let (count, name) = group
            .split_once('x')
            .and_then(|(count, name)| Some((count.parse::<usize>().ok()?, name)))
            .with_context(|| {
                format!("`{group}` is not COUNTxMODEL (such as 2xT4 or 8xA100-80GB)")
            })?;
        ensure!((1..=MOST).contains(&count), "{count} of {name} is out of range: 1 to {MOST}");
        models.extend(std::iter::repeat_n(parse_model(name)?, count));
    }
    Ok(models)
}

fn parse_model(name: &str) -> anyhow::Result<Model> {
    let (base, size) = match name.rsplit_once('-') {
        Some((base, size)) => (base, Some(Bytes::parse(size, Bytes::from_gib(1))?)),
        None => (name, None),
    };
    let known = KNOWN.iter().find(|(known, _, _)| known.eq_ignore_ascii_case(base));
    let memory = size.or(known.map(|(_, gib, _)| Bytes::from_gib(*gib)));
    let Some(memory) = memory else {
        let names: Vec<&str> = KNOWN.iter().map(|(name, _, _)| *name).collect();
        bail!(
            "no known GPU `{base}`: write its VRAM behind it ({base}-24GB), or one of {}",
            names.join(", ")
        );
    };
    let capability =
        known.map(|(_, _, (major, minor))| ComputeCapability { major: *major, minor: *minor });
    Ok(Model { model: name.to_owned(), memory, compute_capability: capability })
}

fn read_bytes<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    let text = String::deserialize(deserializer)?;
    Bytes::parse(&text, Bytes(1)).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(spec: &str, expected: Expect) {
        let text = match spec.parse::<Simulated>() {
            Ok(simulated) => simulated
                .gpus(Uuid::nil())
                .iter()
                .map(|gpu| {
                    format!(
                        "{} {} {:?}\n",
                        gpu.model,
                        gpu.memory,
                        gpu.compute_capability.map(|it| it.to_string())
                    )
                })
                .collect(),
            Err(error) => format!("{error:#}\n"),
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn groups_of_known_and_named_models() {
        check(
            "1xT4+1xA100-80GB",
            expect![[r#"
            T4 16G Some("7.5")
            A100-80GB 80G Some("8.0")
        "#]],
        );
        check(
            "1xMyCard-12G",
            expect![[r#"
            MyCard-12G 12G None
        "#]],
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        check(
            "T4",
            expect![[r#"
            `T4` is not COUNTxMODEL (such as 2xT4 or 8xA100-80GB)
        "#]],
        );
        check(
            "0xT4",
            expect![[r#"
            0 of T4 is out of range: 1 to 64
        "#]],
        );
        check(
            "2xFoo",
            expect![[r#"
            no known GPU `Foo`: write its VRAM behind it (Foo-24GB), or one of P100, V100, T4, RTX2080TI, RTX3090, A10, A40, A100, RTX4090, L4, L40S, H100, H200, B200
        "#]],
        );
        check(
            "2xFoo-lots",
            expect![[r#"
            `lots` is not an amount of memory (such as 512M, 16GB or 1.5T)
        "#]],
        );
    }

    #[test]
    fn a_gpu_keeps_its_name_and_shares_it_with_none() {
        let simulated: Simulated = "2xT4".parse().unwrap();
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(simulated.gpus(a), simulated.gpus(a));
        assert_ne!(simulated.gpus(a)[0].uuid, simulated.gpus(b)[0].uuid);
        assert_ne!(simulated.gpus(a)[0].uuid, simulated.gpus(a)[1].uuid);
    }
}
