//! Everything random in a run comes from here, and all of it from the seed.

/// SplitMix64 (Steele, Lea, Flood 2014): small, and every seed is a good one.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    /// Both ends inclusive.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Small mostly, now and then much larger: how long things take in a network.
    pub fn delay(&mut self, usual: u64, rare: u64) -> u64 {
        if self.one_in(30) { self.between(1, rare) } else { self.between(1, usual) }
    }
}
