//! Where frames of WebSockets begin (RFC 6455, section 5.2), and the frame that ends one. Nothing in them is looked at.

/// Follows one direction of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Frames {
    /// The head of the frame, as far as it came.
    head: [u8; 14],
    have: usize,
    /// Bytes of the frame's payload that are still to come.
    left: u64,
}

impl Frames {
    /// Does the next byte begin a frame? What is put in there harms no message.
    pub(super) fn is_between(&self) -> bool {
        self.have == 0 && self.left == 0
    }

    pub(super) fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let passed = self.step(bytes);
            bytes = &bytes[passed..];
        }
    }

    /// How many of these bytes belong to the frame that has begun.
    pub(super) fn rest(&self, bytes: &[u8]) -> usize {
        if self.is_between() { 0 } else { self.clone().step(bytes) }
    }

    /// Takes bytes until the end of a frame at most. Takes some of any.
    fn step(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while self.left == 0 && taken < bytes.len() {
            self.head[self.have] = bytes[taken];
            self.have += 1;
            taken += 1;
            if self.have == head_length(&self.head[..self.have]) {
                self.left = payload_length(&self.head[..self.have]);
                self.have = 0;
                if self.left == 0 {
                    return taken;
                }
            }
        }
        let payload = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len() - taken);
        self.left -= payload as u64;
        taken + payload
    }
}

fn head_length(head: &[u8]) -> usize {
    let Some(second) = head.get(1) else { return 2 };
    let length = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    2 + length + if second & 0x80 == 0 { 0 } else { 4 }
}

fn payload_length(head: &[u8]) -> u64 {
    let big = |bytes: &[u8]| bytes.iter().fold(0, |length, byte| length << 8 | u64::from(*byte));
    match head[1] & 0x7f {
        126 => big(&head[2..4]),
        127 => big(&head[2..10]),
        length => u64::from(length),
    }
}

/// The frames that end a WebSocket at both sides: close, 1001 "going away" (RFC 6455, section 7.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Farewell {
    pub(super) to_client: [u8; 4],
    pub(super) to_target: [u8; 8],
}

impl Farewell {
    /// What clients send is masked, with random bytes.
    pub fn going_away(mask: [u8; 4]) -> Self {
        let [a, b, c, d] = mask;
        Self { to_client: [0x88, 2, 0x03, 0xe9], to_target: [0x88, 0x82, a, b, c, d, 0x03 ^ a, 0xe9 ^ b] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(length: usize, masked: bool) -> Vec<u8> {
        let mask = if masked { 0x80 } else { 0 };
        let mut frame = vec![0x82];
        match length {
            ..126 => frame.push(mask | length as u8),
            ..65_536 => {
                frame.push(mask | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            _ => {
                frame.push(mask | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend(vec![0xff; length + if masked { 4 } else { 0 }]);
        frame
    }

    #[test]
    fn frames_are_told_apart_however_they_come() {
        let lengths = [0, 1, 125, 126, 127, 65_535, 65_536, 0, 70_000, 3];
        for masked in [true, false] {
            let frames: Vec<Vec<u8>> = lengths.iter().map(|length| frame(*length, masked)).collect();
            let all = frames.concat();
            for size in [1, 2, 3, 7, 1000, 65_536, all.len()] {
                let mut tracker = Frames::default();
                let mut ends = Vec::new();
                let mut at = 0;
                for piece in all.chunks(size) {
                    let mut piece = piece;
                    while !piece.is_empty() {
                        let taken = tracker.step(piece);
                        at += taken;
                        if tracker.is_between() {
                            ends.push(at);
                        }
                        piece = &piece[taken..];
                    }
                }
                let wanted: Vec<usize> = frames
                    .iter()
                    .scan(0, |end, frame| {
                        *end += frame.len();
                        Some(*end)
                    })
                    .collect();
                assert_eq!(ends, wanted, "{masked} {size}");
            }
        }
    }

    #[test]
    fn the_rest_of_a_frame() {
        let mut tracker = Frames::default();
        let both = [frame(10, true), frame(5, true)].concat();
        assert_eq!(tracker.rest(&both), 0);
        for cut in 1..both.len() {
            let mut tracker = Frames::default();
            tracker.pass(&both[..cut]);
            let rest = if cut < 16 {
                16 - cut
            } else if cut == 16 {
                0
            } else {
                both.len() - cut
            };
            assert_eq!(tracker.rest(&both[cut..]), rest, "{cut}");
        }
        tracker.pass(&both);
        assert!(tracker.is_between());
        let mut farewell = Frames::default();
        farewell.pass(&Farewell::going_away([1, 2, 3, 4]).to_target);
        assert!(farewell.is_between());
    }
}
