// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.util.AbstractCollection;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Random;

/// A port at which hosts connect and leave at random, some of them crowding it.
class FullPortTest {
    private record Connection(int number, String host) {}

    @Test
    void nobodyCrowdsOthersOutInAFewHundredHistories() {
        for (long seed = 0; seed < 300; seed++) {
            play(seed);
        }
    }

    @Test
    @Tag("soak")
    @Timeout(3600)
    void nobodyCrowdsOthersOutInManyHistories() {
        long first = Long.getLong("kvferry.soak.first_seed", 1000);
        for (long seed = first; seed < first + Long.getLong("kvferry.soak.seeds", 20_000); seed++) {
            play(seed);
        }
    }

    private static long count(List<Connection> open, String host) {
        return open.stream().filter(connection -> connection.host().equals(host)).count();
    }

    private static void play(long seed) {
        var random = new Random(seed);
        int most = 1 + random.nextInt(16);
        int hosts = 1 + random.nextInt(6);
        var open = new ArrayList<Connection>();
        for (int step = 0; step < 300; step++) {
            var where = "seed " + seed + ", step " + step + ": " + open;
            if (!open.isEmpty() && random.nextInt(3) == 0) {
                open.remove(random.nextInt(open.size()));
                continue;
            }
            var host = "h" + (random.nextBoolean() ? 0 : random.nextInt(hosts));
            var crowd = FullPort.crowd(open, most, host, Connection::host);
            if (open.size() < most) {
                assertThat(crowd).as(where).isEmpty();
            } else {
                assertThat(crowd).as(where).isNotEmpty();
                var victim = crowd.get(random.nextInt(crowd.size()));
                long had = count(open, victim.host()) + (victim.host().equals(host) ? 1 : 0);
                for (int other = 0; other < hosts; other++) {
                    var name = "h" + other;
                    long has = count(open, name) + (name.equals(host) ? 1 : 0);
                    assertThat(has)
                            .as("%s: %s has more than %s, which goes", where, name, victim)
                            .isLessThanOrEqualTo(had);
                }
                int share = most / hosts;
                assertThat(had).as("%s: %s goes", where, victim).isGreaterThan(share);
                open.remove(victim);
            }
            open.add(new Connection(step, host));
            assertThat(open).as(where).hasSizeLessThanOrEqualTo(most);
        }
    }

    /// Each look at it finds one connection less.
    @Test
    void nobodyGoesWhereThereIsRoomMeanwhile() {
        var left = new ArrayList<>(List.of("a", "a", "a", "b"));
        var shrinking =
                new AbstractCollection<String>() {
                    @Override
                    public Iterator<String> iterator() {
                        left.removeFirst();
                        return List.copyOf(left).iterator();
                    }

                    @Override
                    public int size() {
                        return left.size();
                    }
                };
        assertThat(FullPort.crowd(shrinking, 4, "c", host -> host)).isEmpty();
        assertThat(FullPort.crowd(List.of("a", "a", "b"), 3, "c", host -> host))
                .containsExactly("a", "a");
    }
}
