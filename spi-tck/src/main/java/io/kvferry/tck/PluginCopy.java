// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.lang.ref.WeakReference;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.net.URL;
import java.net.URLClassLoader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.function.Predicate;

/// A second copy of a plugin's classes in its own class loader, as for a plugin folder, and a check
/// that this class loader can be garbage-collected once the plugin is closed. It cannot while a
/// thread, a thread local, a shutdown hook or a JDK registry refers to one of its classes.
public final class PluginCopy {
    private static final String CLEARS_SOFT_REFERENCES = "-XX:SoftRefLRUPolicyMSPerMB=0";

    private PluginCopy() {}

    /// Loads the provider again, runs `life`, which must close what it opens, and fails when the
    /// class loader has not been collected within the limit.
    ///
    /// The JDK keeps some classes by soft references, which a JVM clears when it likes; skipped
    /// unless this one clears them at each collection (`-XX:SoftRefLRUPolicyMSPerMB=0`).
    ///
    /// @param type the provider's SPI interface
    public static <P> void mustUnload(Class<P> type, P provider, Duration limit, Consumer<P> life) {
        var source = provider.getClass().getProtectionDomain().getCodeSource();
        assumeTrue(
                !Proxy.isProxyClass(provider.getClass()) && source != null && canBeMade(provider),
                "the provider is no public class with a constructor without arguments");
        assumeTrue(
                clearsSoftReferences(),
                "soft references stay in this JVM: run the tests with " + CLEARS_SOFT_REFERENCES);
        var loader = live(type, provider.getClass().getName(), source.getLocation(), life);
        long end = System.nanoTime() + limit.toNanos();
        while (!loader.refersTo(null)) {
            if (System.nanoTime() > end) {
                throw new AssertionError(
                        "the class loader of "
                                + provider.getClass().getName()
                                + " is still reachable "
                                + limit
                                + " after all was closed");
            }
            System.gc();
            LockSupport.parkNanos(1_000_000);
        }
    }

    /// Copies of a provider with classes of their own: what one keeps in a static field, the others
    /// do not see. Closing it closes the class loaders.
    ///
    /// @param providers one per copy
    public record Copies<P>(List<P> providers, List<URLClassLoader> loaders)
            implements AutoCloseable {
        @Override
        public void close() {
            for (var loader : loaders) {
                try {
                    loader.close();
                } catch (IOException e) {
                    throw new UncheckedIOException("cannot close " + loader, e);
                }
            }
        }
    }

    /// Skips the test where the provider cannot be loaded a second time.
    ///
    /// @param type the provider's SPI interface
    /// @param shared classes of the plugin's that all copies see as one: those of the host, and
    ///   what stands for a medium outside of the process
    public static <P> Copies<P> copies(
            Class<P> type, P provider, int count, Predicate<String> shared) {
        var source = provider.getClass().getProtectionDomain().getCodeSource();
        assumeTrue(
                !Proxy.isProxyClass(provider.getClass()) && source != null && canBeMade(provider),
                "the provider is no public class with a constructor without arguments");
        var copies = new Copies<P>(new ArrayList<>(), new ArrayList<>());
        for (int i = 0; i < count; i++) {
            var loader = new OwnFirst(source.getLocation(), type.getClassLoader(), shared);
            copies.loaders.add(loader);
            copies.providers.add(make(type, provider.getClass().getName(), loader));
        }
        return copies;
    }

    private static <P> P make(Class<P> type, String name, ClassLoader loader) {
        try {
            return type.cast(loader.loadClass(name).getConstructor().newInstance());
        } catch (ReflectiveOperationException e) {
            throw new AssertionError("cannot make a second " + name, e);
        }
    }

    private static boolean clearsSoftReferences() {
        return ManagementFactory.getRuntimeMXBean()
                .getInputArguments()
                .contains(CLEARS_SOFT_REFERENCES);
    }

    private static boolean canBeMade(Object provider) {
        try {
            return Modifier.isPublic(provider.getClass().getModifiers())
                    && Modifier.isPublic(
                            provider.getClass().getDeclaredConstructor().getModifiers());
        } catch (NoSuchMethodException e) {
            return false;
        }
    }

    /// In a method of its own, so that no local variable keeps anything.
    private static <P> WeakReference<ClassLoader> live(
            Class<P> type, String name, URL classes, Consumer<P> life) {
        try (var loader = new OwnFirst(classes, type.getClassLoader(), _ -> false)) {
            life.accept(make(type, name, loader));
            return new WeakReference<>(loader);
        } catch (IOException e) {
            throw new UncheckedIOException("cannot close the class loader of " + name, e);
        }
    }

    /// Takes the plugin's classes from where the plugin came from; the SPI's, and all others, from
    /// the parent.
    private static final class OwnFirst extends URLClassLoader {
        private final Predicate<String> shared;

        OwnFirst(URL classes, ClassLoader parent, Predicate<String> shared) {
            super("copy of a plugin", new URL[] {classes}, parent);
            this.shared = shared;
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            synchronized (getClassLoadingLock(name)) {
                var known = findLoadedClass(name);
                if (known != null) {
                    return known;
                }
                boolean ofParent =
                        name.startsWith("io.kvferry.spi.")
                                || shared.test(name)
                                || findResource(name.replace('.', '/') + ".class") == null;
                return ofParent ? super.loadClass(name, resolve) : findClass(name);
            }
        }
    }
}
