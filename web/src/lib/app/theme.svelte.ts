/**
 * Light, dark, or as the system says. `public/theme.js` applies the kept choice before the first paint.
 *
 * Invariant: the choice stands in `data-theme` of the root element, absent for "system".
 */
import { readLocal, writeLocal } from "./local_values";

export const THEMES = ["light", "system", "dark"] as const;
export type Theme = (typeof THEMES)[number];

function kept(): Theme {
  const value = readLocal("theme");
  return THEMES.find((theme) => theme === value) ?? "system";
}

class ThemeChoice {
  #theme = $state<Theme>(kept());

  get theme(): Theme {
    return this.#theme;
  }

  set theme(theme: Theme) {
    this.#theme = theme;
    writeLocal("theme", theme === "system" ? null : theme);
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }
}

export const themeChoice = new ThemeChoice();
