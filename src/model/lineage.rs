//! Where a cluster comes from, as its id tells.
//!
//! A founded or restored cluster has an id of its own: a UUID. One that was recovered from a survivor keeps it and adds
//! its generation, and a mark that no other recovery has: `UUID-g2-1a2b3c4d`. So members of an earlier generation are
//! strangers to everyone who compares ids, and those who look closer see that they were left behind.

/// What another cluster's id is to one's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinship {
    Same,
    /// The same cluster, recovered since: who belongs to the own one was left behind.
    Newer,
    /// The same cluster, before it was recovered.
    Older,
    /// The same cluster, recovered twice, from two survivors.
    Rival,
    Stranger,
}

/// Terms of one generation; the next one's are all higher, whatever the earlier one comes to.
const TERMS_PER_GENERATION: u64 = 1 << 40;

pub fn kinship(own: &str, other: &str) -> Kinship {
    if own == other {
        return Kinship::Same;
    }
    let ((own_root, own_generation), (root, generation)) = (parts(own), parts(other));
    if own_root != root {
        return Kinship::Stranger;
    }
    match generation.cmp(&own_generation) {
        std::cmp::Ordering::Greater => Kinship::Newer,
        std::cmp::Ordering::Less => Kinship::Older,
        std::cmp::Ordering::Equal => Kinship::Rival,
    }
}

/// 1 until the cluster is recovered for the first time.
pub fn generation(id: &str) -> u64 {
    parts(id).1
}

/// The id of the cluster that is recovered from this one. `mark` is drawn for it.
pub fn next_generation(id: &str, mark: u32) -> String {
    let (root, generation) = parts(id);
    format!("{root}-g{}-{mark:08x}", generation + 1)
}

/// A term that no leader of this generation, or of one before, can have had.
pub fn first_term_after(term: u64) -> u64 {
    (term / TERMS_PER_GENERATION + 1) * TERMS_PER_GENERATION
}

fn parts(id: &str) -> (&str, u64) {
    let recovered = || {
        let (rest, mark) = id.rsplit_once('-')?;
        let (root, generation) = rest.rsplit_once("-g")?;
        let is_mark = mark.len() == 8 && mark.bytes().all(|byte| byte.is_ascii_hexdigit());
        let generation = generation.parse().ok().filter(|number| *number >= 2)?;
        is_mark.then_some((root, generation))
    };
    recovered().unwrap_or((id, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUNDED: &str = "6f0c7f9e-5a55-4f0e-9f39-7c41f3a1d8aa";

    #[test]
    fn generations_are_told_apart() {
        let second = next_generation(FOUNDED, 0x1a2b);
        let third = next_generation(&second, 7);
        let rival = next_generation(FOUNDED, 0x1a2c);
        assert_eq!(second, format!("{FOUNDED}-g2-00001a2b"));
        assert_eq!((generation(FOUNDED), generation(&second), generation(&third)), (1, 2, 3));
        let cases = [
            (FOUNDED, FOUNDED, Kinship::Same),
            (FOUNDED, &second, Kinship::Newer),
            (&second, FOUNDED, Kinship::Older),
            (&second, &third, Kinship::Newer),
            (&third, &rival, Kinship::Older),
            (&second, &rival, Kinship::Rival),
            (&second, "00000000-5a55-4f0e-9f39-7c41f3a1d8aa", Kinship::Stranger),
            ("", FOUNDED, Kinship::Stranger),
        ];
        for (own, other, expected) in cases {
            assert_eq!(kinship(own, other), expected, "{own} and {other}");
        }
    }

    #[test]
    fn later_generations_have_higher_terms() {
        let second = first_term_after(17);
        assert!(second > u64::from(u32::MAX));
        assert!(first_term_after(second + 12_345) > second + u64::from(u32::MAX));
        assert_eq!(first_term_after(0), second);
    }
}
