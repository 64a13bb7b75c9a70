// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.discovery;

import java.io.IOException;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;

/// The class loader of one sub-folder of the plugin folder. The contracts and the logging facade
/// come from the host, so that both sides mean the same types; everything else comes from the
/// folder first, so that two plugins may bring different versions of one library.
final class PluginClassLoader extends URLClassLoader {
    /// Never looked up in the plugin's own jars first. `io.kvferry.engine` is here for its
    /// model-runner contract.
    private static final List<String> SHARED =
            List.of(
                    "java.",
                    "javax.",
                    "jdk.",
                    "sun.",
                    "io.kvferry.spi.",
                    "io.kvferry.engine.",
                    "org.slf4j.",
                    "org.jspecify.");

    /// Service files of our own kinds are not inherited from the host; otherwise every host plugin
    /// would be found again in each plugin folder.
    private static final String OWN_SERVICES = "META-INF/services/io.kvferry.";

    static {
        registerAsParallelCapable();
    }

    PluginClassLoader(String name, URL[] jars, ClassLoader host) {
        super(name, jars, host);
    }

    @Override
    protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
        if (SHARED.stream().anyMatch(name::startsWith)) {
            return super.loadClass(name, resolve);
        }
        synchronized (getClassLoadingLock(name)) {
            var loaded = findLoadedClass(name);
            if (loaded == null) {
                try {
                    loaded = findClass(name);
                } catch (ClassNotFoundException _) {
                    return super.loadClass(name, resolve); // not in the folder: the host's
                }
            }
            if (resolve) {
                resolveClass(loaded);
            }
            return loaded;
        }
    }

    @Override
    public URL getResource(String name) {
        var own = findResource(name);
        return own != null || name.startsWith(OWN_SERVICES) ? own : super.getResource(name);
    }

    @Override
    public Enumeration<URL> getResources(String name) throws IOException {
        var own = findResources(name);
        if (name.startsWith(OWN_SERVICES)) {
            return own;
        }
        var all = Collections.list(own);
        var parent = getParent();
        if (parent != null) {
            all.addAll(Collections.list(parent.getResources(name)));
        }
        return Collections.enumeration(all);
    }
}
