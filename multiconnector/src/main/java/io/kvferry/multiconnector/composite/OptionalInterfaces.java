// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.spi.kv.ConnectorCapabilities.Feature;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;

/// Lets a half of a composite have exactly those optional interfaces whose features it claims. The
/// half itself implements all of them, but which apply is known only from its children.
final class OptionalInterfaces {
    private OptionalInterfaces() {}

    /// @param half implements `base` and all the others
    /// @param optional the interface that belongs to a feature
    /// @param always interfaces that no feature stands for
    static <T> T expose(
            Class<T> base,
            T half,
            Set<Feature> claimed,
            Map<Feature, Class<?>> optional,
            Class<?>... always) {
        if (claimed.containsAll(optional.keySet())) {
            return half;
        }
        var interfaces = new LinkedHashSet<Class<?>>(Set.of(always));
        interfaces.add(base);
        optional.forEach((feature, type) -> {
            if (claimed.contains(feature)) {
                interfaces.add(type);
            }
        });
        return base.cast(
                Proxy.newProxyInstance(
                        OptionalInterfaces.class.getClassLoader(),
                        interfaces.toArray(Class<?>[]::new),
                        (_, method, arguments) -> {
                            try {
                                return method.invoke(half, arguments);
                            } catch (InvocationTargetException e) {
                                throw e.getCause() == null ? e : e.getCause();
                            }
                        }));
    }
}
