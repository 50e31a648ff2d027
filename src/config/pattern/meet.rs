//! What two patterns have in common: whether they meet, where, and whether one takes all of the other's paths.

use super::{PathPattern, Segment, split};

impl Segment {
    /// Whether it fits every text that the other fits, where both stand for one segment.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rest { .. }, _) => true,
            (_, Self::Rest { .. }) | (Self::Literal(_), Self::Capture { .. }) => false,
            (segment, Self::Literal(text)) => segment.fits(text),
            (
                Self::Capture { prefix, suffix, .. },
                Self::Capture {
                    prefix: p,
                    suffix: s,
                    ..
                },
            ) => p.starts_with(prefix.as_str()) && s.ends_with(suffix.as_str()),
        }
    }

    /// Some text that fits; `place` makes it differ from that of other places.
    fn sample(&self, place: usize) -> String {
        match self {
            Self::Literal(literal) => literal.clone(),
            Self::Capture { prefix, suffix, .. } => format!("{prefix}~{place}~{suffix}"),
            Self::Rest { .. } => format!("~{place}~"),
        }
    }

    /// Some text that fits both, or `None` where there is none.
    fn meet(&self, other: &Self, place: usize) -> Option<String> {
        match (self, other) {
            (Self::Literal(text), segment) | (segment, Self::Literal(text)) => {
                segment.fits(text).then(|| text.clone())
            }
            (
                Self::Capture {
                    prefix: p,
                    suffix: s,
                    ..
                },
                Self::Capture {
                    prefix: q,
                    suffix: t,
                    ..
                },
            ) => {
                let (p, q) = if p.len() < q.len() { (q, p) } else { (p, q) };
                let (s, t) = if s.len() < t.len() { (t, s) } else { (s, t) };
                (p.starts_with(q.as_str()) && s.ends_with(t.as_str()))
                    .then(|| format!("{p}~{place}~{s}"))
            }
            (Self::Rest { .. }, segment) | (segment, Self::Rest { .. }) => {
                Some(segment.sample(place))
            }
        }
    }
}

impl PathPattern {
    /// Whether some path matches both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        !self.meetings(0, other, 0).is_empty()
    }

    /// Whether it matches every path that the other does.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        // Longer ones differ from those by the segments of a catch-all alone.
        let longest = self.segments.len().max(other.segments.len()) + 1;
        (0..=longest).all(|length| {
            let Some(theirs) = expand(&other.segments, length) else {
                return true;
            };
            let mine = expand(&self.segments, length);
            mine.is_some_and(|mine| mine.iter().zip(&theirs).all(|(a, b)| a.covers(b)))
        })
    }

    /// Paths that both match after the first `skip` segments of this and the first `other_skip` of
    /// the other are taken off: one of each length, so that what two routes make of them tells
    /// whether they agree. Empty where they never meet.
    #[must_use]
    pub fn meetings(&self, skip: usize, other: &Self, other_skip: usize) -> Vec<String> {
        let mine = self.segments.get(skip..).unwrap_or_default();
        let theirs = other.segments.get(other_skip..).unwrap_or_default();
        let longest = mine.len().max(theirs.len()) + 1;
        (0..=longest)
            .filter_map(|length| {
                let (a, b) = (expand(mine, length)?, expand(theirs, length)?);
                let met: Option<Vec<String>> = a
                    .iter()
                    .zip(&b)
                    .enumerate()
                    .map(|(i, (x, y))| x.meet(y, i))
                    .collect();
                met.map(|segments| format!("/{}", segments.join("/")))
            })
            .collect()
    }

    /// A path that this pattern matches and that, less its first `skip` segments, lies below `path`;
    /// `None` where there is none.
    #[must_use]
    pub fn path_below(&self, skip: usize, path: &str) -> Option<String> {
        let (prefix, segments) = self.segments.split_at_checked(skip)?;
        let above: Vec<&str> = split(path).collect();
        let longest = segments.len().max(above.len() + 1);
        (above.len() + 1..=longest).find_map(|length| {
            let segments = expand(segments, length)?;
            let (head, tail) = segments.split_at_checked(above.len())?;
            if !head
                .iter()
                .zip(&above)
                .all(|(segment, text)| segment.fits(text))
            {
                return None;
            }
            let mut below = String::new();
            let samples = tail
                .iter()
                .enumerate()
                .map(|(i, segment)| segment.sample(i));
            let above = above.iter().map(|&text| text.to_owned());
            for text in prefix
                .iter()
                .map(|segment| segment.sample(0))
                .chain(above)
                .chain(samples)
            {
                below.push('/');
                below.push_str(&text);
            }
            Some(below)
        })
    }
}

/// The segments with a catch-all written out, `length` in all.
fn expand(segments: &[Segment], length: usize) -> Option<Vec<Segment>> {
    let Some((rest @ Segment::Rest { may_be_empty, .. }, head)) = segments.split_last() else {
        return (segments.len() == length).then(|| segments.to_vec());
    };
    let more = length.checked_sub(head.len())?;
    if more == 0 && !may_be_empty {
        return None;
    }
    let mut all = head.to_vec();
    all.resize(length, rest.clone());
    Some(all)
}
