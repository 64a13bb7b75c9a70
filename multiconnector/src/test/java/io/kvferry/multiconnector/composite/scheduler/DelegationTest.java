// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.multiconnector.composite.worker.MultiEcWorker;
import io.kvferry.multiconnector.composite.worker.MultiWorker;

import org.junit.jupiter.api.Test;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;

/// Fails when the contracts gain a method that the composites do not delegate to their children.
class DelegationTest {
    @Test
    void leavesNoMethodToADefaultThatIgnoresTheChildren() {
        for (var half :
                List.of(
                        MultiScheduler.class,
                        MultiWorker.class,
                        MultiEcScheduler.class,
                        MultiEcWorker.class)) {
            assertThat(undelegated(half)).as("methods of %s", half.getSimpleName()).isEmpty();
        }
    }

    @Test
    void passesEveryMethodOfViewsOn() {
        assertThat(undelegated(ChildRequestView.class)).isEmpty();
        assertThat(undelegated(ChildStepView.class)).isEmpty();
        assertThat(undelegated(ChildBlockPool.class)).isEmpty();
    }

    private static List<String> undelegated(Class<?> half) {
        return Arrays.stream(half.getMethods())
                .filter(method -> !Modifier.isStatic(method.getModifiers()))
                .filter(method -> method.getDeclaringClass().isInterface())
                .map(Method::toString)
                .collect(Collectors.toList());
    }
}
