//! The nodes that could start, and the limits that they wait for.
//!
//! Nodes that count towards the same limits form a class. Only the first node of a class is in the common queue. When
//! one of its limits is reached it moves to the queue of that limit, so that it is not looked at again before a slot is
//! free there.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use super::{
    Limits, Refused,
    plan::{NONE, Sets, Wants, small},
};

/// Priority of a node, then the order in which nodes were added.
type Key = (u64, Reverse<u32>);

/// Queue entry: the first node of a class, or a node without limits of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Token {
    key: Key,
    class: u32,
}

/// Limits that a class counts towards.
type Needs = [u32; 4];

/// Class of the nodes that count only towards the overall limit.
const FREE: u32 = 0;

#[derive(Debug, Default)]
struct Class {
    needs: Needs,
    /// Agents of which one works on a node of the class, each with its limit.
    any: Box<[(u32, u32)]>,
    nodes: BinaryHeap<Key>,
    /// First of `nodes` for which a token is queued.
    shown: Option<Key>,
}

#[derive(Debug)]
struct Limit {
    most: usize,
    used: usize,
    parked: BinaryHeap<Token>,
}

#[derive(Debug)]
pub(super) struct Ready {
    queue: BinaryHeap<Token>,
    classes: Vec<Class>,
    limits: Vec<Limit>,
    most: usize,
    used: usize,
    rules: Limits,
    /// Limit of all nodes that agents work on, once there is one.
    all_agents: u32,
    agents: BTreeMap<u32, u32>,
    providers: BTreeMap<u32, u32>,
    /// Number of the class of nodes with these needs and this set of agents.
    numbers: BTreeMap<(Needs, u32), u32>,
    pub(super) sets: Sets,
    /// Entries whose agents are all at work.
    parked: Vec<Token>,
}

impl Ready {
    pub(super) fn new(rules: Limits, sets: Sets) -> Self {
        let free = Class { needs: [NONE; 4], ..Class::default() };
        Self {
            queue: BinaryHeap::new(),
            classes: vec![free],
            limits: Vec::new(),
            most: rules.overall.unwrap_or(usize::MAX),
            used: 0,
            rules,
            all_agents: NONE,
            agents: BTreeMap::new(),
            providers: BTreeMap::new(),
            numbers: BTreeMap::from([(([NONE; 4], NONE), FREE)]),
            sets,
            parked: Vec::new(),
        }
    }

    /// Returns the class of nodes that count as `wants` and belong to the group `group`.
    pub(super) fn class(&mut self, wants: Wants, group: u32) -> Result<u32, Refused> {
        if wants.agent == NONE && wants.any == NONE && wants.provider == NONE && group == NONE {
            return Ok(FREE);
        }
        let all = self.any_agent(wants.agent.min(wants.any))?;
        let needs = [self.agent(wants.agent)?, self.provider(wants.provider)?, group, all];
        let key = (needs, wants.any);
        if let Some(class) = self.numbers.get(&key) {
            return Ok(*class);
        }
        let class = small(self.classes.len())?;
        let agents = self.sets.agents(wants.any).to_vec();
        let any = agents.into_iter().map(|agent| Ok((agent, self.agent(agent)?)));
        let any = any.collect::<Result<_, Refused>>()?;
        self.classes.push(Class { needs, any, ..Class::default() });
        self.numbers.insert(key, class);
        Ok(class)
    }

    /// Adds a limit and returns its number.
    pub(super) fn limit(&mut self, most: usize) -> Result<u32, Refused> {
        let number = small(self.limits.len())?;
        // A limit of zero would never let the graph end.
        self.limits.push(Limit { most: most.max(1), used: 0, parked: BinaryHeap::new() });
        Ok(number)
    }

    fn any_agent(&mut self, agent: u32) -> Result<u32, Refused> {
        let Some(most) = self.rules.all_agents.filter(|_| agent != NONE) else { return Ok(NONE) };
        if self.all_agents == NONE {
            self.all_agents = self.limit(most)?;
        }
        Ok(self.all_agents)
    }

    fn agent(&mut self, agent: u32) -> Result<u32, Refused> {
        if agent == NONE {
            return Ok(NONE);
        }
        if let Some(limit) = self.agents.get(&agent) {
            return Ok(*limit);
        }
        let most = self.rules.agents.get(&(agent as usize)).copied().unwrap_or(self.rules.each_agent);
        let limit = self.limit(most)?;
        self.agents.insert(agent, limit);
        Ok(limit)
    }

    fn provider(&mut self, provider: u32) -> Result<u32, Refused> {
        if let Some(limit) = self.providers.get(&provider) {
            return Ok(*limit);
        }
        let Some(most) = self.rules.providers.get(&(provider as usize)).copied() else { return Ok(NONE) };
        let limit = self.limit(most)?;
        self.providers.insert(provider, limit);
        Ok(limit)
    }

    /// Marks `node` as ready to start.
    pub(super) fn push(&mut self, node: u32, priority: u64, class: u32) {
        let key = (priority, Reverse(node));
        if class == FREE {
            self.queue.push(Token { key, class });
        } else if let Some(of) = self.classes.get_mut(class as usize) {
            of.nodes.push(key);
            if of.shown < Some(key) {
                of.shown = Some(key);
                self.queue.push(Token { key, class });
            }
        }
    }

    /// Takes the first node with a free slot at every limit, and its slots; with it comes the agent that it got, if
    /// there was a choice. `stands(node, class)` tells whether a queued entry is still valid.
    #[inline]
    pub(super) fn pop(&mut self, stands: impl Fn(u32, u32) -> bool) -> Option<(u32, Option<u32>)> {
        while self.used < self.most {
            let token = self.queue.pop()?;
            let (_, Reverse(node)) = token.key;
            if token.class == FREE {
                if stands(node, FREE) {
                    self.used += 1;
                    return Some((node, None));
                }
            } else if let Some(agent) = self.take_class(token, &stands) {
                return Some((node, agent));
            }
        }
        None
    }

    /// Takes the first node of a class, and the first of its agents that has a slot.
    fn take_class(&mut self, token: Token, stands: &impl Fn(u32, u32) -> bool) -> Option<Option<u32>> {
        let class = self.classes.get(token.class as usize)?;
        let (needs, (_, Reverse(node))) = (class.needs, token.key);
        let free = class.any.iter().find(|(_, limit)| !self.is_full(*limit)).copied();
        let waits = free.is_none() && !class.any.is_empty();
        let mut taken = None;
        if class.shown == Some(token.key) {
            if !stands(node, token.class) {
                self.show_next(token.class, stands);
            } else if let Some(full) = needs.iter().find(|limit| self.is_full(**limit)) {
                if let Some(full) = self.limits.get_mut(*full as usize) {
                    full.parked.push(token);
                }
            } else if waits {
                self.parked.push(token);
            } else {
                self.take(token.class);
                if let Some(limit) = free.and_then(|(_, limit)| self.limits.get_mut(limit as usize)) {
                    limit.used += 1;
                }
                self.show_next(token.class, stands);
                taken = Some(free.map(|(agent, _)| agent));
            }
        }
        // It may have been the one woken for a limit's free slot: pass that slot on.
        needs.into_iter().for_each(|limit| self.wake(limit));
        taken
    }

    fn show_next(&mut self, class: u32, stands: &impl Fn(u32, u32) -> bool) {
        let Some(of) = self.classes.get_mut(class as usize) else { return };
        of.nodes.pop();
        while of.nodes.peek().is_some_and(|(_, node)| !stands(node.0, class)) {
            of.nodes.pop();
        }
        of.shown = of.nodes.peek().copied();
        if let Some(key) = of.shown {
            self.queue.push(Token { key, class });
        }
    }

    fn is_full(&self, limit: u32) -> bool {
        self.limits.get(limit as usize).is_some_and(|limit| limit.used >= limit.most)
    }

    /// Takes the slots of a class, whether they are free or not.
    pub(super) fn take(&mut self, class: u32) {
        self.used += 1;
        self.each_limit(class, |limit| limit.used += 1);
    }

    /// Releases the slots of a class.
    #[inline]
    pub(super) fn release(&mut self, class: u32) {
        self.used = self.used.saturating_sub(1);
        if class != FREE {
            self.each_limit(class, |limit| limit.used = limit.used.saturating_sub(1));
            let needs = self.classes.get(class as usize).map_or([NONE; 4], |class| class.needs);
            needs.into_iter().for_each(|limit| self.wake(limit));
            self.wake_parked();
        }
    }

    /// Takes a slot of an agent, whether one is free or not.
    pub(super) fn take_agent(&mut self, agent: u32) -> Result<(), Refused> {
        let limit = self.agent(agent)?;
        if let Some(limit) = self.limits.get_mut(limit as usize) {
            limit.used += 1;
        }
        Ok(())
    }

    /// Releases a slot of an agent.
    pub(super) fn release_agent(&mut self, agent: u32) {
        let Some(limit) = self.agents.get(&agent).copied() else { return };
        if let Some(limit) = self.limits.get_mut(limit as usize) {
            limit.used = limit.used.saturating_sub(1);
        }
        self.wake(limit);
        self.wake_parked();
    }

    /// Requeues the entries for which an agent has a slot again.
    fn wake_parked(&mut self) {
        let parked = std::mem::take(&mut self.parked);
        for token in parked {
            let Some(class) = self.classes.get(token.class as usize) else { continue };
            if class.shown != Some(token.key) {
                continue;
            }
            match class.any.iter().all(|(_, limit)| self.is_full(*limit)) {
                true => self.parked.push(token),
                false => self.queue.push(token),
            }
        }
    }

    fn each_limit(&mut self, class: u32, mut change: impl FnMut(&mut Limit)) {
        let needs = self.classes.get(class as usize).map_or([NONE; 4], |class| class.needs);
        for limit in needs {
            if let Some(limit) = self.limits.get_mut(limit as usize) {
                change(limit);
            }
        }
    }

    /// Requeues the first waiter of a limit if the limit has a free slot.
    fn wake(&mut self, limit: u32) {
        let Some(limit) = self.limits.get_mut(limit as usize) else { return };
        while limit.used < limit.most {
            let Some(token) = limit.parked.pop() else { return };
            if self.classes.get(token.class as usize).is_some_and(|class| class.shown == Some(token.key)) {
                self.queue.push(token);
                return;
            }
        }
    }
}
