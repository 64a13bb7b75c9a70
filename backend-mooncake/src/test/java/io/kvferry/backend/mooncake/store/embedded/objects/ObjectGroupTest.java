// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.objects;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.StoreIdentity;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.Random;

/// Members of a group come and go in any order.
class ObjectGroupTest {
    private static final StoreIdentity ONE = new StoreIdentity("", "model", "layout");

    @Test
    void hasWhoCameAndDidNotLeave() {
        long seed = new Random().nextLong();
        var random = new Random(seed);
        var group = new ObjectGroup(new ObjectGroup.Name(ONE, "group"));
        var model = new ArrayList<StoredObject>();
        for (int i = 0; i < 2000; i++) {
            if (model.size() < 2 || random.nextInt(100) < 52) {
                var member = new StoredObject(ONE, "k" + i, i, 1, 1, i, 0, false, group);
                assertThat(group.add(member)).isTrue();
                model.add(member);
            } else {
                StoredObject member = model.remove(random.nextInt(model.size()));
                assertThat(group.remove(member)).isFalse();
            }
            assertThat(new HashSet<>(group.members()))
                    .as("seed %d, step %d", seed, i)
                    .isEqualTo(new HashSet<>(model));
        }
        while (!model.isEmpty()) {
            StoredObject member = model.remove(random.nextInt(model.size()));
            assertThat(group.remove(member)).isEqualTo(model.isEmpty());
        }
        var late = new StoredObject(ONE, "late", 0, 1, 1, 0, 0, false, group);
        assertThat(group.add(late)).isFalse();
    }
}
