//! What the servers of a fake cluster know, and what they answer.

use super::*;

impl State {
    pub(super) fn run(
        &mut self,
        node: usize,
        session: &mut Session,
        command: Vec<Vec<u8>>,
    ) -> String {
        let name = String::from_utf8_lossy(&command[0]).into_owned();
        match (&name[..], &mut session.transaction) {
            ("ASKING", _) => {
                session.asking = Asking::Yes;
                return "+OK\r\n".to_owned();
            }
            ("MULTI", _) => {
                // As the server does: the flag holds for the whole transaction.
                let asking = std::mem::take(&mut session.asking);
                session.transaction = Some(Transaction {
                    asking,
                    ..Transaction::default()
                });
                return "+OK\r\n".to_owned();
            }
            ("EXEC", Some(_)) => {
                let transaction = session.transaction.take().expect("it was just looked at");
                return self.execute(node, &transaction);
            }
            (_, Some(transaction)) => {
                if let Some(redirect) = self.redirect(node, &command, &transaction.asking) {
                    transaction.failed = Some(redirect.clone());
                    return format!("-{redirect}\r\n");
                }
                transaction.queued.push(command);
                return "+QUEUED\r\n".to_owned();
            }
            _ => {}
        }
        let asking = std::mem::take(&mut session.asking);
        match self.redirect(node, &command, &asking) {
            Some(redirect) => {
                self.redirected += 1;
                format!("-{redirect}\r\n")
            }
            None => self.answer(node, &command),
        }
    }

    pub(super) fn execute(&mut self, node: usize, transaction: &Transaction) -> String {
        if transaction.failed.is_some() {
            return "-EXECABORT Transaction discarded because of previous errors.\r\n".to_owned();
        }
        for command in &transaction.queued {
            if let Some(redirect) = self.redirect(node, command, &transaction.asking) {
                return format!("-{redirect}\r\n");
            }
        }
        let replies: String = transaction
            .queued
            .iter()
            .map(|command| self.answer(node, command))
            .collect();
        format!("*{}\r\n{replies}", transaction.queued.len())
    }

    /// Why a node does not run a command, if it does not.
    pub(super) fn redirect(
        &self,
        node: usize,
        command: &[Vec<u8>],
        asking: &Asking,
    ) -> Option<String> {
        let keys = keys_of(command);
        let slot = slot_of(keys.first()?);
        let here: HashSet<bool> = keys
            .iter()
            .map(|key| self.counters[node].contains_key(*key))
            .collect();
        let missing = here.contains(&false);
        let owner = self.owners[usize::from(slot)];
        let target = self.moving.get(&slot);
        let port = |node: usize| self.ports[node % self.ports.len()];
        if self.disowned.contains(&slot) {
            return Some(format!("MOVED {slot} :{}", port(node + 1)));
        }
        match (owner == node, target) {
            (true, None) => None,
            (true, Some(_)) if !missing => None,
            (true, Some(_)) if here.contains(&true) => {
                Some("TRYAGAIN Multiple keys request during rehashing".into())
            }
            (true, Some(&target)) => Some(format!("ASK {slot} 127.0.0.1:{}", port(target))),
            (false, Some(&target)) if target == node && *asking == Asking::Yes => {
                let split = keys.len() > 1 && missing;
                split.then(|| "TRYAGAIN Multiple keys request during rehashing".into())
            }
            // The host may be left out: then it is the one that was asked.
            (false, _) => Some(format!("MOVED {slot} :{}", port(owner))),
        }
    }

    pub(super) fn answer(&mut self, node: usize, command: &[Vec<u8>]) -> String {
        let text = |at: usize| String::from_utf8_lossy(&command[at]).into_owned();
        let counters = &mut self.counters[node];
        match &text(0)[..] {
            name if self.loading.contains(name) => {
                "-LOADING Redis is loading the dataset in memory\r\n".to_owned()
            }
            "PING" => "+PONG\r\n".to_owned(),
            "ECHO" => format!("${}\r\n{}\r\n", command[1].len(), text(1)),
            "INCRBY" => {
                self.ran += 1;
                let value = counters.entry(command[1].clone()).or_default();
                *value += text(2).parse::<i64>().unwrap();
                format!(":{value}\r\n")
            }
            "EXPIRE" => format!(":{}\r\n", i32::from(counters.contains_key(&command[1]))),
            "MGET" => {
                let values = command[1..].iter().map(|key| match counters.get(key) {
                    Some(value) => format!("${}\r\n{value}\r\n", value.to_string().len()),
                    None => "$-1\r\n".to_owned(),
                });
                format!("*{}\r\n{}", command.len() - 1, values.collect::<String>())
            }
            "CLUSTER" if self.hidden => "*0\r\n".to_owned(),
            "CLUSTER" => self.slots(),
            other => format!("-ERR unknown command '{other}'\r\n"),
        }
    }

    pub(super) fn slots(&self) -> String {
        let (mut rows, mut first) = (Vec::new(), 0);
        for last in 0..self.owners.len() {
            if self.owners.get(last + 1) != Some(&self.owners[last]) {
                let port = self.ports[self.owners[last]];
                rows.push(format!(
                    "*3\r\n:{first}\r\n:{last}\r\n*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$2\r\nid\r\n"
                ));
                first = last + 1;
            }
        }
        format!("*{}\r\n{}", rows.len(), rows.concat())
    }

    pub(super) fn shuffle(&mut self, slot: u16) -> bool {
        let owner = self.owners[usize::from(slot)];
        let Some(&target) = self.moving.get(&slot) else {
            self.moving.insert(
                slot,
                (owner + self.rng.usize(1..self.ports.len())) % self.ports.len(),
            );
            return false;
        };
        let left: Vec<Vec<u8>> = self.counters[owner]
            .keys()
            .filter(|key| slot_of(key) == slot)
            .cloned()
            .collect();
        if let Some(key) = self.rng.choice(&left) {
            let value = self.counters[owner]
                .remove(key)
                .expect("it was just listed");
            self.counters[target].insert(key.clone(), value);
            return false;
        }
        self.owners[usize::from(slot)] = target;
        self.moving.remove(&slot);
        true
    }
}

fn keys_of(command: &[Vec<u8>]) -> Vec<&[u8]> {
    match &command[0][..] {
        b"INCRBY" | b"EXPIRE" => vec![&command[1]],
        b"MGET" => command[1..].iter().map(Vec::as_slice).collect(),
        _ => Vec::new(),
    }
}
