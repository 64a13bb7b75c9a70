// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.spi.kv.StepView;

import java.util.AbstractList;
import java.util.ArrayList;
import java.util.List;
import java.util.RandomAccess;

/// What a step computes; reused from step to step.
final class StepSchedule extends AbstractList<ScheduledTokens> implements StepView, RandomAccess {
    private final List<ScheduledTokens> slots = new ArrayList<>();
    private int size;
    private int tokens;
    private long number;
    List<String> preempted = new ArrayList<>();
    List<String> finished = new ArrayList<>();

    void begin(long step) {
        number = step;
        size = 0;
        tokens = 0;
    }

    void add(RequestState request, int from, int count, boolean first) {
        if (size == slots.size()) {
            slots.add(new ScheduledTokens(request));
        }
        slots.get(size++).set(request, from, count, first);
        tokens += count;
    }

    int tokens() {
        return tokens;
    }

    void discard(RequestState request) {
        for (int i = 0; i < size; i++) {
            if (slots.get(i).state() == request) {
                slots.get(i).discarded = true;
            }
        }
    }

    /// Takes discarded parts out of a step that has not begun: their requests have no blocks any
    /// more.
    void removeDiscarded() {
        int kept = 0;
        for (int i = 0; i < size; i++) {
            var slot = slots.get(i);
            if (slot.discarded) {
                tokens -= slot.count();
            } else {
                slots.set(i, slots.get(kept));
                slots.set(kept++, slot);
            }
        }
        size = kept;
    }

    @Override
    public ScheduledTokens get(int index) {
        return slots.get(index);
    }

    @Override
    public int size() {
        return size;
    }

    @Override
    public long number() {
        return number;
    }

    @Override
    public int scheduledCount() {
        return size;
    }

    @Override
    public ScheduledRequest scheduled(int index) {
        return slots.get(index);
    }

    @Override
    public List<String> preempted() {
        return preempted;
    }

    @Override
    public List<String> finished() {
        return finished;
    }
}
