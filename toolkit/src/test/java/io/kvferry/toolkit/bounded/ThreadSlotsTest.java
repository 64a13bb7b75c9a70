// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

class ThreadSlotsTest {
    @Test
    void aThreadTakesWhatItPutDown() throws Exception {
        var slots = new ThreadSlots<String>(64);
        assertThat(slots.take()).isNull();
        assertThat(slots.put("mine")).isTrue();
        assertThat(slots.put("second")).as("the place is occupied").isFalse();
        try (var other = Executors.newSingleThreadExecutor()) {
            other.submit(
                            () -> {
                                assertThat(slots.take()).as("of a thread started next").isNull();
                                assertThat(slots.put("other")).isTrue();
                                assertThat(slots.remove("mine")).as("of another thread").isFalse();
                            })
                    .get(10, TimeUnit.SECONDS);
        }
        var seen = new ArrayList<String>();
        slots.forEach(seen::add);
        assertThat(seen).containsExactlyInAnyOrder("mine", "other");
        assertThat(slots.removeAny("other")).isTrue();
        assertThat(slots.removeAny("other")).isFalse();
        assertThat(slots.remove("mine")).isTrue();
        assertThat(slots.take()).isNull();
        assertThat(slots.takeAny()).isNull();
    }

    @Test
    void hasAtLeastOnePlace() {
        for (int least : new int[] {0, 1, 3, 1_000_000}) {
            var slots = new ThreadSlots<Integer>(least);
            assertThat(slots.put(least)).isTrue();
            assertThat(slots.takeAny()).isEqualTo(least);
        }
    }

    /// Each object is in one hand or one place at a time, and none is lost.
    @Test
    void nothingIsTakenTwiceNorLost() throws Exception {
        int threads = 6;
        int objects = 4;
        var slots = new ThreadSlots<AtomicBoolean>(2); // so that threads meet
        var rest = new ConcurrentLinkedQueue<AtomicBoolean>();
        for (int i = 0; i < objects; i++) {
            rest.add(new AtomicBoolean());
        }
        try (var executor = Executors.newFixedThreadPool(threads)) {
            List<Callable<Void>> work = new ArrayList<>();
            for (int t = 0; t < threads; t++) {
                var choice = new Random(t);
                work.add(() -> {
                    for (int i = 0; i < 50_000; i++) {
                        var held =
                                switch (choice.nextInt(3)) {
                                    case 0 -> slots.take();
                                    case 1 -> slots.takeAny();
                                    default -> rest.poll();
                                };
                        if (held == null) {
                            continue;
                        }
                        assertThat(held.compareAndSet(false, true)).as("in one hand").isTrue();
                        held.set(false);
                        if (choice.nextBoolean() && slots.put(held)) {
                            if (choice.nextInt(4) > 0
                                    || !(choice.nextBoolean()
                                            ? slots.remove(held)
                                            : slots.removeAny(held))) {
                                continue;
                            }
                        }
                        rest.add(held);
                    }
                    return null;
                });
            }
            for (var done : executor.invokeAll(work, 60, TimeUnit.SECONDS)) {
                done.get();
            }
        }
        slots.forEach(rest::add);
        assertThat(rest).hasSize(objects).doesNotHaveDuplicates();
    }
}
