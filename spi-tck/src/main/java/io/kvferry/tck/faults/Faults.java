// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.tck.faults.FaultPlan.Fault;

import java.lang.reflect.Method;
import java.util.Set;

/// The faults that KV and encoder-cache connectors have in common.
final class Faults {
    private Faults() {}

    /// @param mayThrow names of the methods that do
    static void throwSometimes(Method method, Set<String> mayThrow, FaultPlan plan) {
        if (!mayThrow.contains(method.getName())) {
            return;
        }
        var what = "injected into " + method.getName();
        if (plan.strikes(Fault.THROW)) {
            throw new KvFerryException(ErrorCode.IO, what);
        }
        if (plan.strikes(Fault.ERROR)) {
            throw switch (plan.pick(3)) {
                case 0 -> new NoClassDefFoundError(what);
                case 1 -> new AssertionError(what);
                default -> new StackOverflowError(what);
            };
        }
    }

    /// Whether the call answers null instead of what it owes.
    static boolean isForgotten(Method method, FaultPlan plan) {
        return !method.getReturnType().isPrimitive() && plan.strikes(Fault.NULL);
    }
}
