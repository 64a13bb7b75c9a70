// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

/// The instances of one role, in round robin.
///
/// Threading: any thread.
final class Pool {
    private final List<Upstream> members;
    private final AtomicInteger turn = new AtomicInteger();

    Pool(List<Upstream> members) {
        this.members = List.copyOf(members);
    }

    List<Upstream> members() {
        return members;
    }

    long upCount() {
        return members.stream().filter(Upstream::isUp).count();
    }

    /// The order in which a request tries them: from the next in turn on, those that seem dead
    /// last.
    List<Upstream> order() {
        int first = Math.floorMod(turn.getAndIncrement(), members.size());
        var order = new ArrayList<Upstream>(members.size());
        for (boolean wanted : new boolean[] {true, false}) {
            for (int i = 0; i < members.size(); i++) {
                var member = members.get((first + i) % members.size());
                if (member.isUp() == wanted && !order.contains(member)) {
                    order.add(member);
                }
            }
        }
        return order;
    }
}
