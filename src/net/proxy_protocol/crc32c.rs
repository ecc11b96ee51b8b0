//! CRC-32C (Castagnoli), RFC 4960 appendix B: a table of 1 KiB is enough for headers of at most 4 KiB.

/// Sum over the pieces as if they were one.
pub(super) fn sum(pieces: &[&[u8]]) -> u32 {
    let bytes = pieces.iter().flat_map(|piece| piece.iter());
    !bytes.fold(!0, |crc, &byte| (crc >> 8) ^ TABLE[usize::from(byte ^ crc.to_le_bytes()[0])])
}

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    // The polynomial, bits reversed.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums() {
        // RFC 3720 appendix B.4, and the usual check value.
        assert_eq!(sum(&[]), 0);
        assert_eq!(sum(&[b"123456789"]), 0xe306_9283);
        assert_eq!(sum(&[&[0; 32]]), 0x8a91_36aa);
        assert_eq!(sum(&[&[0xff; 32]]), 0x62a8_ab43);
        assert_eq!(sum(&[b"1234", b"", b"56789"]), 0xe306_9283);
    }
}
