/** When a chat was last written in, in the words a list is divided by. */

export type Age = "Today" | "Yesterday" | "Last 7 days" | "Last 30 days" | "Older";

export function ageOf(timeMs: number, nowMs: number): Age {
  const midnight = new Date(nowMs);
  midnight.setHours(0, 0, 0, 0);
  if (timeMs >= midnight.getTime()) return "Today";
  const daysBefore = (days: number) => {
    const day = new Date(midnight);
    day.setDate(day.getDate() - days);
    return day.getTime();
  };
  if (timeMs >= daysBefore(1)) return "Yesterday";
  if (timeMs >= daysBefore(7)) return "Last 7 days";
  if (timeMs >= daysBefore(30)) return "Last 30 days";
  return "Older";
}
