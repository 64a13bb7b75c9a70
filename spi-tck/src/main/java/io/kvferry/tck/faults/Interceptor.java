// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import org.jspecify.annotations.Nullable;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.Set;

/// Wraps an SPI object in a proxy that implements exactly the SPI interfaces of that object, so
/// that its optional interfaces stay visible.
public final class Interceptor {
    /// What happens to one call.
    @FunctionalInterface
    public interface Around {
        @Nullable Object call(Method method, @Nullable Object[] arguments, Proceed proceed)
                throws Throwable;
    }

    /// The call on the object itself.
    @FunctionalInterface
    public interface Proceed {
        @Nullable Object run() throws Throwable;
    }

    private static final Object[] NONE = {};

    private Interceptor() {}

    /// A stand-in for `target`.
    ///
    /// @param type an interface of the SPI that it implements
    public static <T> T wrap(Class<T> type, T target, Around around) {
        var interfaces = new LinkedHashSet<Class<?>>();
        interfaces.add(type);
        collect(target.getClass(), interfaces);
        var proxy =
                Proxy.newProxyInstance(
                        type.getClassLoader(),
                        interfaces.toArray(Class<?>[]::new),
                        (self, method, given) -> {
                            var arguments = given == null ? NONE : given;
                            if (method.getDeclaringClass() == Object.class) {
                                return ofObject(self, target, method, arguments);
                            }
                            return around.call(
                                    method, arguments, () -> invoke(target, method, arguments));
                        });
        return type.cast(proxy);
    }

    private static @Nullable Object ofObject(
            Object self, Object target, Method method, @Nullable Object[] arguments)
            throws Throwable {
        return switch (method.getName()) {
            case "equals" -> self == arguments[0];
            case "hashCode" -> System.identityHashCode(self);
            default -> invoke(target, method, arguments);
        };
    }

    private static @Nullable Object invoke(
            Object target, Method method, @Nullable Object[] arguments) throws Throwable {
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException e) {
            throw e.getCause() == null ? e : e.getCause();
        }
    }

    private static void collect(@Nullable Class<?> type, Set<Class<?>> into) {
        if (type == null) {
            return;
        }
        Arrays.stream(type.getInterfaces())
                .forEach(face -> {
                    if (face.getPackageName().startsWith("io.kvferry.spi")) {
                        into.add(face);
                    }
                    collect(face, into);
                });
        collect(type.getSuperclass(), into);
    }
}
