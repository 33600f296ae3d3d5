//! The time in which a certificate is valid, parsed from its bytes. The TLS library checks the
//! certificates of others, and has no function for the server's own.

use jiff::civil::DateTime;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// The seconds since 1970 in which a chain is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: i64,
    pub(crate) until: i64,
}

/// Seconds before its end in which a certificate is nearly over, and at most the last tenth of its
/// life. Renewal begins earlier.
const EXPIRY_WARNING_SECONDS: i64 = 7 * 86_400;

/// The status of a chain at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValidityStatus {
    NotYet,
    Good,
    NearlyOver,
    Over,
}

// ASN.1 tags.
const SEQUENCE_TAG: u8 = 0x30;
const VERSION_TAG: u8 = 0xa0;
const UTC_TIME_TAG: u8 = 0x17;
const GENERALIZED_TIME_TAG: u8 = 0x18;

impl Validity {
    /// Parses the time in which all certificates of a chain are valid. Returns `None` if one of
    /// them is invalid.
    pub(crate) fn from_chain(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let validities: Option<Vec<Self>> = chain
            .iter()
            .map(|certificate| Self::from_der(certificate))
            .collect();
        validities?.into_iter().reduce(|all, one| Self {
            from: all.from.max(one.from),
            until: all.until.min(one.until),
        })
    }

    /// `Certificate { TBSCertificate { [0] version?, serial, signature, issuer, Validity { from, until }, .. }, .. }`
    fn from_der(der: &[u8]) -> Option<Self> {
        let mut rest = Element::read(&mut { der })?.content_of(SEQUENCE_TAG)?;
        let mut fields = Element::read(&mut rest)?.content_of(SEQUENCE_TAG)?;
        if Element::read(&mut { fields })?.tag == VERSION_TAG {
            Element::read(&mut fields)?;
        }
        for _serial_signature_issuer in 0..3 {
            Element::read(&mut fields)?;
        }
        let mut times = Element::read(&mut fields)?.content_of(SEQUENCE_TAG)?;
        Some(Self {
            from: Element::read(&mut times)?.time()?,
            until: Element::read(&mut times)?.time()?,
        })
    }

    /// Seconds until the end; less than 0 if it is over.
    pub(crate) fn seconds_left(self, now: i64) -> i64 {
        self.until.saturating_sub(now)
    }

    pub(crate) fn status(self, now: i64) -> ValidityStatus {
        let life = self.until.saturating_sub(self.from);
        match self.seconds_left(now) {
            _ if now < self.from => ValidityStatus::NotYet,
            left if left < 0 => ValidityStatus::Over,
            left if left < EXPIRY_WARNING_SECONDS.min(life / 10) => ValidityStatus::NearlyOver,
            _ => ValidityStatus::Good,
        }
    }
}

/// A DER element.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
}

impl<'a> Element<'a> {
    /// Reads the first element of `bytes`, and advances `bytes`.
    fn read(bytes: &mut &'a [u8]) -> Option<Self> {
        let (&[tag, first], mut rest) = bytes.split_first_chunk()?;
        let length = match first {
            0..=0x7f => usize::from(first),
            // A length of several bytes; a certificate needs at most three.
            0x81..=0x83 => {
                let (length, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
                rest = after;
                length
                    .iter()
                    .fold(0, |length, byte| length << 8 | usize::from(*byte))
            }
            _ => return None,
        };
        let (content, after) = rest.split_at_checked(length)?;
        *bytes = after;
        Some(Self { tag, content })
    }

    fn content_of(self, tag: u8) -> Option<&'a [u8]> {
        (self.tag == tag).then_some(self.content)
    }

    /// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
    fn time(self) -> Option<i64> {
        const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
        let text = str::from_utf8(self.content).ok()?;
        let century = match (self.tag, text.len()) {
            (UTC_TIME_TAG, 13) if text < "50" => "20",
            (UTC_TIME_TAG, 13) => "19",
            (GENERALIZED_TIME_TAG, 15) => "",
            _ => return None,
        };
        let time = DateTime::strptime("%Y%m%d%H%M%SZ", format!("{century}{text}")).ok()?;
        Some(time.duration_since(EPOCH).as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn certificate(from: (i32, u8, u8), until: (i32, u8, u8)) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from.0, from.1, from.2);
        params.not_after = date_time_ymd(until.0, until.1, until.2);
        params
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .der()
            .clone()
    }

    #[test]
    fn the_time_of_a_certificate_is_read() {
        let check = |from, until, expected| {
            let read = Validity::from_chain(&[certificate(from, until)]).unwrap();
            assert_eq!((read.from, read.until), expected, "{from:?} {until:?}");
        };
        check((1970, 1, 1), (2026, 11, 23), (0, 1_795_392_000));
        check((2000, 2, 29), (2049, 12, 31), (951_782_400, 2_524_521_600));
        check((2024, 3, 1), (2100, 3, 1), (1_709_251_200, 4_107_542_400));
    }

    #[test]
    fn a_chain_is_valid_while_all_of_it_is() {
        let chain = [
            certificate((2020, 1, 1), (2040, 1, 1)),
            certificate((2021, 1, 1), (2039, 1, 1)),
        ];
        let [first, second] = chain
            .each_ref()
            .map(|one| Validity::from_chain(std::slice::from_ref(one)).unwrap());
        let all = Validity::from_chain(&chain).unwrap();
        assert_eq!((all.from, all.until), (second.from, second.until));
        assert!(first.from < all.from && all.until < first.until);
    }

    #[test]
    fn every_cut_certificate_is_refused_without_a_panic() {
        let whole = certificate((2020, 1, 1), (2040, 1, 1));
        for length in 0..whole.len() {
            assert_eq!(Validity::from_der(&whole[..length]), None, "{length}");
        }
        let mut changed = whole.to_vec();
        for at in 0..whole.len() {
            changed[at] ^= 0x55;
            let _ = Validity::from_der(&changed);
            changed[at] ^= 0x55;
        }
    }

    #[test]
    fn the_last_tenth_of_a_life_is_told_of() {
        let day = 86_400;
        let check = |life: i64, at: i64, expected| {
            assert_eq!(
                Validity {
                    from: 0,
                    until: life
                }
                .status(at),
                expected,
                "{life} {at}"
            );
        };
        check(90 * day, -1, ValidityStatus::NotYet);
        check(90 * day, 0, ValidityStatus::Good);
        check(90 * day, 82 * day, ValidityStatus::Good);
        check(90 * day, 84 * day, ValidityStatus::NearlyOver);
        check(90 * day, 91 * day, ValidityStatus::Over);
        check(day, day / 2, ValidityStatus::Good);
        check(day, day - day / 20, ValidityStatus::NearlyOver);
    }
}
