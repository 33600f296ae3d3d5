//! The adjacency lists of vertices.

/// A list of vertices for each vertex, in one allocation.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    starts: Vec<u32>,
    vertices: Vec<u32>,
}

impl Neighbours {
    pub(super) fn new(count: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let mut starts = vec![0_u32; count + 1];
        pairs
            .clone()
            .for_each(|(from, _)| starts[from as usize + 1] += 1);
        for at in 0..count {
            starts[at + 1] += starts[at];
        }
        let mut next = starts.clone();
        let mut vertices = vec![0; starts[count] as usize];
        for (from, to) in pairs {
            vertices[next[from as usize] as usize] = to;
            next[from as usize] += 1;
        }
        Self { starts, vertices }
    }

    pub(crate) fn of(&self, vertex: u32) -> &[u32] {
        let vertex = vertex as usize;
        &self.vertices[self.starts[vertex] as usize..self.starts[vertex + 1] as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.vertices.len()
    }
}
